"""Recorded models as workers: they answer questions as real models did, free and offline.

A **table** is a gzipped CSV of a row a question: ``id``, ``category``, ``split`` (train,
validation, test), ``answer`` (the right one), and for each model a column with its final answer
("": none could be read off). Several samples stand in one cell, with ``|`` between them. The usage
of an answer stands likewise in ``MODEL:output_tokens``, ``:input_tokens``, ``:dollars`` and
``:seconds`` ("": unknown). ``NAME.toml`` beside ``NAME.csv.gz`` is the table's note: ``source``,
``licence``, ``date``, and the ``sha256`` that the table is checked against.

A table of multiple choice may hold letters alone, without any text. A table of an evaluation also
has the text of each ``question``, the whole answers (``MODEL:text``), and in its note ``[origin]``,
the task of the questions. In these texts ``%XX`` stands for ``|``, ``%`` and control characters.

A recorded model ignores its subtask and the other steps. An aggregator reads the letters of other
models off the responses that it sees.
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
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b, sha256
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, cast
from urllib.parse import unquote

from openconductor.config import dump_toml, one_of, read_toml, shorten
from openconductor.errors import ConfigError, Rejected
from openconductor.protocols import CallContext, OnText, Provider
from openconductor.store.storage import write_whole
from openconductor.types import Completion, Message, Sampling, Usage

COLUMNS = ["id", "category", "split", "answer"]
QUESTION = "question"
"""The column of the questions' texts, the fifth where a table has it."""
TEXT = "text"
"""The column ``MODEL:text`` of a model's whole answers."""
SPLITS = ("test", "train", "validation")
# Fields of Usage that a table may hold, with their types.
FACTS: Mapping[str, type] = {
    "output_tokens": int,
    "input_tokens": int,
    "dollars": Decimal,
    "seconds": float,
}
# Workers that every table has: the most frequent letter, the same weighted by skill in the
# category, and the letter of the most skilled model.
AGGREGATORS = ("vote", "weighted_vote", "pick")
# Weight, in questions, of a model's overall accuracy beside its accuracy in one category.
SHRUNK = 10
OTHERS = 9  # wrong letters among which a wrong model is taken to choose
Cells = Mapping[str, str]  # one row: the text in each column

_LARGEST_CELL = 2**31 - 1  # characters
_ID_LINE = re.compile(r"^\[([^\]\n]+)\]", re.MULTILINE)
_LETTER = "[A-J]"
_ESCAPED = {character: f"%{ord(character):02X}" for character in "%|\r\0"}  # % goes first
_ANSWER = re.compile(
    r"^(?:\d+\. )?(.+): Answer: ([A-J])$", re.MULTILINE
)  # numbered where a prompt lists them


# ── tables ────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class ReplayTable:
    """A table.

    Attributes:
        rows: by id.
        models: their names.
        note: ``source``, ``licence`` and ``sha256``, and whatever else the note holds.
        origin: the options of the task that the questions are of, with its name as ``task``, or
            of several tasks, by the name before the questions' ids; {}: the table holds letters
            alone.
        has_letters: True if all right answers are letters of choices.
    """

    rows: Mapping[str, Cells]
    models: Sequence[str]
    note: Mapping[str, str]
    origin: Mapping[str, object]
    has_letters: bool = field(init=False)
    _by_question: Mapping[str, Cells] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rows = self.rows.values()
        by_question = {unquote(row[QUESTION]): row for row in rows if QUESTION in row}
        letters = all(re.fullmatch(_LETTER, row["answer"]) for row in rows)
        object.__setattr__(self, "has_letters", letters)
        object.__setattr__(self, "_by_question", by_question)

    def find(self, opening: str) -> Cells | None:
        """Return the row of the question with which a text begins; None: there is none.

        The question ends at a blank line, where a subtask follows it. In a table of letters alone
        it is known by its line ``[ID]``.
        """
        if not self._by_question:
            line = _ID_LINE.search(opening)
            return None if line is None else self.rows.get(line[1])
        end = len(opening)
        while end > 0:
            row = self._by_question.get(opening[:end])
            if row is not None:
                return row
            end = opening.rfind("\n\n", 0, end)
        return None


class Recorded(NamedTuple):
    """A recorded answer.

    Attributes:
        final: the final answer; "": none could be read off.
        text: the whole answer; "": it was not kept, or blank.
        usage: as far as it is known.
    """

    final: str
    text: str
    usage: Usage


def recall(row: Cells, model: str, sample: int) -> Recorded:
    """Return a model's recorded answer to the question of a row.

    Successive samples go through the recorded ones in turn.
    """
    finals = _read_cell(row[model])
    place = sample % len(finals)
    usage: dict[str, Any] = {}
    for fact, kind in FACTS.items():
        column = f"{model}:{fact}"
        if column in row:
            usage[fact] = kind(row[column].split("|")[place] or "0")
    texts = _read_cell(row.get(f"{model}:{TEXT}", "|" * place))
    return Recorded(finals[place], texts[place], Usage(**usage))


def _read_cell(cell: str) -> list[str]:
    """Return the samples in a cell."""
    return [unquote(sample) for sample in cell.split("|")]


def escape(text: str) -> str:
    """Return a text as it stands in a table."""
    for character, escaped in _ESCAPED.items():
        text = text.replace(character, escaped)
    return text


def table_path(name: str) -> Path:
    """Return the path of a table: a file ``….csv.gz``, or the name of one in the package."""
    if name.endswith(".csv.gz"):
        return Path(name)
    return Path(__file__).parent / "replay_tables" / f"{name}.csv.gz"


def read_table(path: Path) -> ReplayTable:
    """Read a table. A table that has not changed is read once in a process.

    Raises:
        ConfigError: the file is missing, is not such a table, or differs from its note. The message
            says where, what was got and what was expected.
    """
    try:
        return _read(path, path.stat().st_mtime_ns)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ConfigError(f"replay table {path}: {error}; expected gzipped CSV in UTF-8") from error


def _note_path(path: Path) -> Path:
    return path.with_name(path.name.replace(".csv.gz", ".toml"))


@lru_cache(maxsize=8)
def _read(path: Path, _changed: int) -> ReplayTable:
    content = path.read_bytes()
    note = _read_note(path, sha256(content).hexdigest())
    origin = read_origin(path)
    csv.field_size_limit(_LARGEST_CELL)  # of the whole process: answers may be long
    text = gzip.decompress(content).decode("utf-8-sig")
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: dict[str, Cells] = {}
    try:
        head = next(lines, list[str]())
        model_of = _find_models(head)
        for cells in lines:
            row = dict(zip(head, cells, strict=False))
            if len(cells) != len(head) or row["id"] in rows:
                raise ValueError(
                    f"got {shorten(cells)}, expected {len(head)} cells, and an id of its own"
                )
            _check_row(row, model_of)
            rows[row["id"]] = row
    except (ValueError, csv.Error) as error:
        raise ConfigError(f"replay table {path}, line {lines.line_num}: {error}") from error
    return ReplayTable(rows, list(dict.fromkeys(model_of.values())), note, origin)


def read_origin(path: Path) -> Mapping[str, object]:
    """Return the task that a table's questions are of (``ReplayTable.origin``), from its note."""
    note = _note_path(path)
    values = read_toml(note) if note.is_file() else {}
    return cast("Mapping[str, object]", values.get("origin", {}))


def _read_note(path: Path, digest: str) -> dict[str, str]:
    note = {"source": path.name, "licence": "unknown", "sha256": digest}
    beside = _note_path(path)
    if beside.is_file():
        values = read_toml(beside).items()
        note |= {name: str(value) for name, value in values if not isinstance(value, dict)}
    if note["sha256"] != digest:
        raise ConfigError(
            f"replay table {path}: got the SHA-256 {digest}, "
            f"expected {note['sha256']} ({beside.name})"
        )
    return note


def _find_models(head: Sequence[str]) -> dict[str, str]:
    """Return the model of each column after the first four; raise ValueError for a wrong head."""
    names = {"", *AGGREGATORS, *head}
    repeated_or_reserved = len(names) < len(head) + len(AGGREGATORS) + 1
    columns = head[4:]
    if columns[:1] == [QUESTION]:
        columns = columns[1:]
    if head[:4] != COLUMNS or not columns or repeated_or_reserved:
        expected = f"{', '.join(COLUMNS)}, and models, each once"
        raise ValueError(f"got the columns {shorten(head)}, expected {expected}")
    model_of: dict[str, str] = {}
    for column in columns:
        model, _, fact = column.rpartition(":")
        model_of[column] = model if fact in (*FACTS, TEXT) and model in columns else column
    return model_of


def _check_row(row: Cells, model_of: Mapping[str, str]) -> None:
    """Raise ValueError if a cell does not have its column's form."""
    forms = {"id": r"[^\]\n]+", "split": "|".join(SPLITS), "answer": _LETTER}
    final = f"{_LETTER}?"
    if QUESTION in row:
        forms |= {"id": r"[^\n]+", "answer": "[^|]*", QUESTION: "[^|]+"}
        final = "[^|]*"
    for column, model in model_of.items():
        if column == model:
            sample = final
        elif column.endswith(f":{TEXT}"):
            sample = "[^|]*"
        elif column.endswith("_tokens"):
            sample = r"\d*"
        else:
            sample = r"(\d+(\.\d+)?(e-\d+)?)?"
        further = row[model].count("|")  # as many as the model has samples
        forms[column] = rf"{sample}(\|{sample}){{{further}}}"
    for column, form in forms.items():
        if not re.fullmatch(form, row[column], re.ASCII):
            raise ValueError(f"{column}: got {shorten(row[column])}, expected {form}")


def write_table(path: Path, rows: Sequence[Cells], **note: object) -> None:
    """Write a table and its note, the same bytes for the same rows.

    Columns of usage in which nothing is known are left out.

    Raises:
        JournalError: the disk failed.
    """
    columns: list[str] = []
    for column in rows[0]:
        is_fact = column.rpartition(":")[2] in (*FACTS, TEXT)
        if not is_fact or any(row[column].strip("|") for row in rows):
            columns.append(column)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    content = gzip.compress(text.getvalue().encode(), mtime=0)
    write_whole(path, content)
    note["sha256"] = sha256(content).hexdigest()
    write_whole(_note_path(path), dump_toml(note))


def cells_of(model: str, samples: Sequence[Recorded]) -> dict[str, str]:
    """Return a model's columns of a row."""
    cells = {
        model: "|".join(escape(sample.final) for sample in samples),
        f"{model}:{TEXT}": "|".join(escape(sample.text) for sample in samples),
    }
    for fact in FACTS:
        values = [str(getattr(sample.usage, fact) or "") for sample in samples]
        cells[f"{model}:{fact}"] = "|".join(values).lower()
    return cells


def skills_of(table: ReplayTable) -> dict[tuple[str, str], float]:
    """Return the accuracy on the split ``train`` by model and category ("": all).

    The accuracy in a category is shrunk to the model's accuracy overall.
    """
    shares: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for row in table.rows.values():
        if row["split"] != "train":
            continue
        for model in table.models:
            letters = row[model].split("|")
            share = letters.count(row["answer"]) / len(letters)
            shares[model, row["category"]].append(share)
            shares[model, ""].append(share)
    skills: dict[tuple[str, str], float] = {}
    for (model, category), values in shares.items():
        overall = fmean(shares[model, ""])
        skills[model, category] = (sum(values) + SHRUNK * overall) / (len(values) + SHRUNK)
    return skills


def weigh_vote(skill: float) -> float:
    """Return the log odds of a model being right against it choosing one certain wrong letter."""
    skill = min(max(skill, 0.01), 0.99)
    return math.log(skill / (1 - skill) * OTHERS)


# ── workers ───────────────────────────────────────────────────────────────────────────────────────
def answer_text(model: str, recorded: Recorded) -> str:
    """Return a recorded answer as a worker says it."""
    if recorded.text:
        return recorded.text
    if recorded.final:
        return _say(model, recorded.final)
    return f"No answer by {model}."


def _say(model: str, letter: str) -> str:
    return f"{model}: Answer: {letter}"


class ReplayPoolProvider(Provider):
    """A recorded model or an aggregator, named ``TABLE:MODEL``, ``TABLE:vote`` and so on.

    The call's sample number alone decides which of a model's recorded samples is drawn: successive
    samples of a question go through them in turn. An aggregator reads the answers of recorded
    models off the responses that it sees; ``sampling.seed`` breaks its ties. It is free, so it
    takes no price.

    The weight of a vote is the log odds of the model being right against it choosing one certain
    wrong letter. Against its being wrong at all, models that err more often than not would vote
    against themselves.

    Args:
        model: the table (a file ``….csv.gz``, or the name of one in the package: ``mmlu_pro``), a
            colon, and the model or aggregator (``vote``, ``weighted_vote``, ``pick``).

    Raises:
        ConfigError: the table or the model is unknown.
    """

    repeatable = True

    def __init__(self, model: str) -> None:
        stem, is_file, self._name = model.rpartition(".csv.gz:")
        path = f"{stem}.csv.gz"
        if not is_file:
            path, _, self._name = model.partition(":")
        self._table = read_table(table_path(path))
        one_of(f"replay table {path}", self._name, (*self._table.models, *AGGREGATORS))
        if self._name in AGGREGATORS and not self._table.has_letters:
            raise ConfigError(
                f"replay table {path}: {self._name!r} counts letters, and its answers are others; "
                f"expected one of {', '.join(self._table.models)}"
            )
        self.identity = f"replay_pool {self._name} {self._table.note['sha256'][:16]}"
        self.merges = self._name in AGGREGATORS
        self.phrases = (_say(self._name, ""),)
        self.prices_itself = self.merges
        self._skills = skills_of(self._table) if self.merges else {}

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
            Rejected: the table lacks the question. That is no verdict, so it is masked.
        """
        row = self._find_row(messages)
        usage = Usage()
        if self.merges:
            text = self._aggregate(row, messages, sampling.seed or 0)
        else:
            recorded = recall(row, self._name, call.sample)
            usage = recorded.usage
            if self._table.has_letters:  # aggregators read them off this form
                recorded = recorded._replace(text="")
            text = answer_text(self._name, recorded)
        if on_text is not None:
            on_text(text)
        return Completion(text, usage=usage)

    def _find_row(self, messages: Sequence[Message]) -> Cells:
        opening = next((message.content for message in messages if message.role == "user"), "")
        row = self._table.find(opening)
        if row is None:
            raise Rejected(
                f"{self.identity}: got {shorten(opening)}, "
                "expected a question of its table: its text, or [ID] first"
            )
        return row

    def _aggregate(self, row: Cells, messages: Sequence[Message], seed: int) -> str:
        """Return the answers in sight, a line each, and behind them the one of most weight.

        The last line says how many of them it is: ``vote: Answer: C (2 of 3)``. A model counts
        once, however often its answer is in sight, so a later round may show an aggregator an
        answer of this form beside further ones.
        """
        letters = self._letters_in(messages)
        if not letters:
            return answer_text(self._name, Recorded("", "", Usage()))
        weights: defaultdict[str, float] = defaultdict(float)
        for model, letter in letters.items():
            overall = self._skills.get((model, ""), 0.5)
            skill = self._skills.get((model, row["category"]), overall)
            if self._name == "vote":
                weights[letter] += 1
            elif self._name == "weighted_vote":
                weights[letter] += weigh_vote(skill)
            else:
                weights[letter] = max(weights[letter], skill)

        def draw(letter: str) -> bytes:
            return blake2b(f"{seed}/{row['id']}/{letter}".encode()).digest()

        ordered = sorted(weights, key=draw)
        heaviest = max(ordered, key=lambda letter: round(weights[letter], 9))
        lines = [_say(model, letter) for model, letter in letters.items()]
        count = list(letters.values()).count(heaviest)
        lines.append(f"{_say(self._name, heaviest)} ({count} of {len(letters)})")
        return "\n".join(lines)

    def _letters_in(self, messages: Sequence[Message]) -> dict[str, str]:
        """Return the letter of each recorded model whose answer is in sight, in the table's order.

        Answers of aggregators are no further opinions.
        """
        letters: dict[str, str] = {}
        for message in messages:
            if message.role == "user":
                continue
            letters.update(_ANSWER.findall(message.content))
        return {model: letters[model] for model in self._table.models if model in letters}
