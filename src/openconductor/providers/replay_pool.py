"""Workers that are recorded models: they answer questions as real models did, at no cost and without a network.

In: a replay table, and the turns of one call. Out: the letter that the model had answered to the
question that opens the context, with the tokens, dollars and seconds that are on record; or what an
aggregator makes of what it sees.

A **table** is a gzipped CSV of a row a question, without its text: ``id``, ``category``, ``split``
(train, validation, test), ``answer`` (the right letter), and for each model a column with its
letter ("" where none could be read off). Several samples stand in one cell, ``|`` between them.
What an answer used stands likewise in ``MODEL:output_tokens``, ``:input_tokens``, ``:dollars``,
``:seconds`` ("" is not known). ``NAME.toml`` beside ``NAME.csv.gz`` says where it is from:
``source``, ``licence``, ``date``, and the ``sha256`` that it is checked against.

Not covered: what a subtask says. A recorded model answers the question whatever it is told, and
sees no other step.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b, sha256
from pathlib import Path
from statistics import fmean

from openconductor.config import dump_toml, one_of, read_toml, shorten
from openconductor.errors import ConfigError, Rejected
from openconductor.protocols import CallContext, OnText, Provider
from openconductor.store.storage import write_whole
from openconductor.types import Completion, Message, Sampling, Usage

COLUMNS = ["id", "category", "split", "answer"]
SPLITS = ("test", "train", "validation")
FACTS: Mapping[str, type] = {
    "output_tokens": int,
    "input_tokens": int,
    "dollars": Decimal,
    "seconds": float,
}
"""Fields of Usage that may be known of an answer."""
AGGREGATORS = ("vote", "weighted_vote", "pick")
"""Workers that every table has: the plurality, the same weighted by who is good at what, and who is best at it."""
SHRUNK = 10
"""Questions that a model's overall accuracy counts for beside those of one category."""
OTHERS = 9
"""Wrong letters among which those that err are taken to choose."""
Cells = Mapping[str, str]
"""One row: the text in each column."""

_QUESTION = re.compile(r"^\[([^\]\n]+)\]", re.MULTILINE)
_SAID = re.compile(
    r"^(?:\d+\. )?(.+): Answer: ([A-J])$", re.MULTILINE
)  # numbered where a prompt lists them


# ── tables ────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class ReplayTable:
    """The rows by id, the models' names, and the note beside the file (``source, licence, sha256`` always)."""

    rows: Mapping[str, Cells]
    models: Sequence[str]
    note: Mapping[str, str]


def table_path(name: str) -> Path:
    """The path of a table: of a file ``….csv.gz``, or of one that ships with the package, by its name."""
    return (
        Path(name)
        if name.endswith(".csv.gz")
        else Path(__file__).parent / "replay_tables" / f"{name}.csv.gz"
    )


def read_table(path: Path) -> ReplayTable:
    """Read a table; one that has not changed is read once in a process.

    Raises:
        ConfigError: it is not there, is not such a table, or is not the one that its note
            describes. Says where, what was got and what was expected.
    """
    try:
        return _read(path, path.stat().st_mtime_ns)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ConfigError(f"replay table {path}: {error}; expected gzipped CSV in UTF-8") from error


@lru_cache(maxsize=8)
def _read(path: Path, _changed: int) -> ReplayTable:
    content, beside = path.read_bytes(), path.with_name(path.name.replace(".csv.gz", ".toml"))
    note = {
        "source": path.name,
        "licence": "unknown",
        "sha256": (digest := sha256(content).hexdigest()),
    }
    note |= {
        name: str(value) for name, value in (read_toml(beside) if beside.is_file() else {}).items()
    }
    if note["sha256"] != digest:
        raise ConfigError(
            f"replay table {path}: got the SHA-256 {digest}, expected {note['sha256']} ({beside.name})"
        )
    lines = csv.reader(
        io.StringIO(gzip.decompress(content).decode("utf-8-sig"), newline=""), strict=True
    )
    rows: dict[str, Cells] = {}
    try:
        head = next(lines, list[str]())
        if head[:4] != COLUMNS or len({"", *AGGREGATORS, *head}) < len(head) + 4 or len(head) < 5:
            raise ValueError(
                f"got the columns {shorten(head)}, expected {', '.join(COLUMNS)}, and models, each once"
            )
        parts = {name: name.rpartition(":") for name in head[4:]}
        of_model = {
            name: part[0] if part[2] in FACTS and part[0] in head else name
            for name, part in parts.items()
        }
        for cells in lines:
            row = dict(zip(head, cells, strict=False))
            if len(cells) != len(head) or row["id"] in rows:
                raise ValueError(
                    f"got {shorten(cells)}, expected {len(head)} cells, and an id of its own"
                )
            _check(row, of_model)
            rows[row["id"]] = row
    except (ValueError, csv.Error) as error:
        raise ConfigError(f"replay table {path}, line {lines.line_num}: {error}") from error
    return ReplayTable(rows, list(dict.fromkeys(of_model.values())), note)


def _check(row: Cells, of_model: Mapping[str, str]) -> None:
    """Raise a ValueError where a cell is not of its column's form; ``of_model`` says whose columns there are."""
    forms = {"id": r"[^\]\n]+", "split": "|".join(SPLITS), "answer": "[A-J]"}
    for column, model in of_model.items():
        one = (
            "[A-J]?"
            if column == model
            else r"\d*"
            if column.endswith("_tokens")
            else r"(\d+(\.\d+)?(e-\d+)?)?"
        )
        forms[column] = (
            rf"{one}(\|{one}){{{row.get(model, '').count('|')}}}"  # as many as there are samples
        )
    for column, form in forms.items():
        if not re.fullmatch(form, row[column], re.ASCII):
            raise ValueError(f"{column}: got {shorten(row[column])}, expected {form}")


def write_table(path: Path, rows: Sequence[Cells], **note: str) -> None:
    """Write a table and its note: the same bytes for the same rows. Columns of facts that are not known are left out.

    Raises:
        JournalError: the disk failed.
    """
    known = [
        one
        for one in rows[0]
        if one.rpartition(":")[2] not in FACTS or any(row[one].strip("|") for row in rows)
    ]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, known, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    content = gzip.compress(text.getvalue().encode(), mtime=0)
    write_whole(path, content)
    note["sha256"] = sha256(content).hexdigest()
    write_whole(path.with_name(path.name.replace(".csv.gz", ".toml")), dump_toml(note))


def cells_of(model: str, said: Sequence[tuple[str, Usage]]) -> dict[str, str]:
    """A model's columns in a row: the letter of each sample ("": none), and what it used."""
    facts = {
        f"{model}:{fact}": [str(getattr(usage, fact) or "") for _, usage in said] for fact in FACTS
    }
    return {model: "|".join(one for one, _ in said)} | {
        name: "|".join(each).lower() for name, each in facts.items()
    }


def skills_of(table: ReplayTable) -> dict[tuple[str, str], float]:
    """By model and category ("" is all), its accuracy on the split ``train``, shrunk to its accuracy overall."""
    right: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for row in table.rows.values():
        for model in table.models if row["split"] == "train" else ():
            letters = row[model].split("|")
            for category in (row["category"], ""):
                right[model, category].append(letters.count(row["answer"]) / len(letters))
    return {
        (model, category): (sum(shares) + SHRUNK * fmean(right[model, ""])) / (len(shares) + SHRUNK)
        for (model, category), shares in right.items()
    }


# ── workers ───────────────────────────────────────────────────────────────────────────────────────
class ReplayPoolProvider(Provider):
    """A recorded model, or an aggregator: ``TABLE:MODEL``, ``TABLE:vote``, ``TABLE:weighted_vote``, ``TABLE:pick``.

    Which of a model's recorded samples is drawn depends on the call's sample number alone:
    successive samples of a question go through them in turn. An aggregator reads the answers of
    recorded models off the responses that it sees; ``sampling.seed`` breaks its ties. It costs
    nothing, so it has no price.

    A vote's weight is the log odds of the model being right against it choosing one certain wrong
    letter. (Against its being wrong at all, models that err more often than not would vote against
    themselves.)

    Args:
        model: the table (a file ``….csv.gz``, or the name of one that ships: ``mmlu_pro``), a
            colon, the model.

    Raises:
        ConfigError: there is no such table, or no such model in it.
    """

    def __init__(self, model: str) -> None:
        path, ends, name = model.rpartition(".csv.gz:")
        path, _, name = (path + ends[:-1], "", name) if ends else model.partition(":")
        self._table, self._name = read_table(table_path(path)), name
        one_of(f"replay table {path}", name, (*self._table.models, *AGGREGATORS))
        self.prices_itself = name in AGGREGATORS
        self.identity = f"replay_pool {name} {self._table.note['sha256'][:16]}"
        self._skills = skills_of(self._table) if self.prices_itself else {}

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Answer the question that opens the context.

        Raises:
            Rejected: the table does not hold it. That is no verdict: it is masked.
        """
        opening = next((message.content for message in messages if message.role == "user"), "")
        found = _QUESTION.search(opening)
        row = self._table.rows.get(found[1]) if found else None
        if row is None:
            raise Rejected(
                f"{self.identity}: got {shorten(opening)}, expected a question of its table: [ID] first"
            )
        if self.prices_itself:
            letter, usage = self._aggregated(row, messages, sampling.seed or 0), Usage()
        else:
            letters = row[self._name].split("|")
            place = call.sample % len(letters)
            used = {
                fact: row[at].split("|")[place]
                for fact in FACTS
                if (at := f"{self._name}:{fact}") in row
            }
            letter, usage = (
                letters[place],
                Usage(**{fact: FACTS[fact](one or "0") for fact, one in used.items()}),
            )
        text = f"{self._name}: Answer: {letter}" if letter else f"No answer by {self._name}."
        if on_text is not None:
            on_text(text)
        return Completion(text, usage=usage)

    def _aggregated(self, row: Cells, messages: Sequence[Message], seed: int) -> str:
        """The letter of most weight among those that are seen; "" where none is."""
        tally: defaultdict[str, float] = defaultdict(float)
        seen = [
            match.groups()
            for one in messages
            if one.role != "user"
            for match in _SAID.finditer(one.content)
        ]
        for model, letter in seen:
            if model not in self._table.models:  # an aggregator's answer is no further opinion
                continue
            skill = self._skills.get((model, row["category"]), self._skills.get((model, ""), 0.5))
            skill = min(max(skill, 0.01), 0.99)
            odds = math.log(skill / (1 - skill) * OTHERS)
            votes = {
                "vote": tally[letter] + 1,
                "weighted_vote": tally[letter] + odds,
                "pick": max(tally[letter], skill),
            }
            tally[letter] = votes[self._name]
        drawn = sorted(
            tally, key=lambda letter: blake2b(f"{seed}/{row['id']}/{letter}".encode()).digest()
        )
        return max(drawn, key=lambda letter: round(tally[letter], 9), default="")
