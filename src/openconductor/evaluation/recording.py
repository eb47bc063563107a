"""Replay tables: the recorded answers of an evaluation, or of MMLU-Pro's published outputs."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import date
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from openconductor.errors import ConfigError
from openconductor.evaluation.headroom import alone
from openconductor.evaluation.records import CONFIG, Results, plain_text
from openconductor.evaluation.sheets import load_sheets, task_options
from openconductor.evaluation.statistics import Key
from openconductor.graders.choice import LETTERS, extract_choice
from openconductor.providers.replay_pool import (
    AGGREGATORS,
    QUESTION,
    SPLITS,
    Recorded,
    cells_of,
    escape,
    write_table,
)
from openconductor.tasks.paper_mix import MixGrader
from openconductor.types import Usage

TEXTS = ("model_outputs", "generated_text", "response")
"""The keys of a model's whole answer in MMLU-Pro's files."""
_SOURCES = "the folder of an `eval` of workers, or of JSON files"


class _Question(NamedTuple):
    """A recorded question; its text is "" where letters alone are recorded."""

    id: str
    category: str
    right: str
    text: str = ""


_Samples = dict[str, list[Recorded]]
"""The recorded answers by model."""


def write_replay_table(source: Path, out: Path) -> dict[str, Any]:
    """Write a replay table from a folder of recorded answers; return its figures.

    Raises:
        ConfigError: no question was answered by all models, or a file has another form.
    """
    if not source.is_dir():
        raise ConfigError(f"{source}: no such folder; expected {_SOURCES}")
    recorded: dict[_Question, _Samples] = defaultdict(lambda: defaultdict(list))
    note: dict[str, object] = {"source": source.name, "licence": "unknown"}
    note["date"] = date.today().isoformat()
    if (source / CONFIG).is_file():
        note["origin"] = _add_evaluation(source, recorded)
    else:
        _add_outputs(source, recorded)
    names: dict[str, None] = {}
    most = 0
    for samples in recorded.values():
        names |= dict.fromkeys(samples)
        most = max(most, *(len(answers) for answers in samples.values()))
    models = [name for name in names if name not in (*AGGREGATORS, QUESTION)]
    rows: list[dict[str, str]] = []
    for question, samples in sorted(recorded.items()):
        if all(len(samples[model]) == most for model in models):
            rows.append(_row(question, models, samples))
    if not rows or not models:
        raise ConfigError(f"{source}: no question was answered by all models; expected {_SOURCES}")
    write_table(out, rows, **note)
    splits = Counter(row["split"] for row in rows)
    return {
        "questions": len(rows),
        "left_out": len(recorded) - len(rows),
        **{split: splits[split] for split in sorted(SPLITS)},
        "models": models,
        "samples": most,
    }


def _row(question: _Question, models: list[str], samples: _Samples) -> dict[str, str]:
    row = {
        "id": question.id,
        "category": question.category,
        "split": split_of(question.text or question.id),
        "answer": escape(question.right),
    }
    if question.text:
        row[QUESTION] = escape(question.text)
    for model in models:
        row |= cells_of(model, samples[model])
    return row


def split_of(text: str) -> str:
    """Return the split of a question, which follows from its text, or else from its id.

    Questions of one text are in one split.
    """
    return (*SPLITS, "train", "train")[blake2b(text.encode()).digest()[0] % 5]


def _add_evaluation(folder: Path, recorded: Mapping[_Question, _Samples]) -> Mapping[str, object]:
    """Add the answers of an evaluation's workers; return the task of the questions (``origin``).

    Of several tasks it is a table of tasks by their names, which then stand before the questions'
    ids. An answer that its grader could not decide is an answer, and a failed call is none.

    Raises:
        ConfigError: one of several tasks is a mix of tasks itself.
    """
    results = Results.load(folder)
    config = results.config
    sheets = load_sheets(config)
    questions: dict[Key, _Question] = {}
    for sheet in sheets.values():
        if len(sheets) > 1 and isinstance(sheet.grader, MixGrader):
            raise ConfigError(f"{folder}: the task {sheet.name} is a mix; expected it alone")
        for problem in sheet.problems:
            name = problem.id if len(sheets) == 1 else f"{sheet.name}/{problem.id}"
            right = problem.reference if isinstance(problem.reference, str) else ""
            questions[sheet.name, problem.id] = _Question(
                id=name,
                category=problem.kind or (problem.task if len(sheets) == 1 else sheet.name),
                right=plain_text(right),
                text=plain_text(problem.question),
            )
    for worker, records in alone((*results.records, *results.learning)).items():
        for record in sorted(records, key=lambda record: record.sample):
            is_answer = record.answer is not None or record.correct is not None
            if record.key in questions and is_answer:
                final = plain_text(record.extracted or "")
                answer = Recorded(final, plain_text(record.answer or ""), record.usage)
                recorded[questions[record.key]][worker].append(answer)
    origins = {table.name: task_options(table, config) for table in config.task}
    return origins if len(origins) > 1 else origins[config.task[0].name]


def _add_outputs(folder: Path, recorded: Mapping[_Question, _Samples]) -> None:
    """Add MMLU-Pro's published outputs, a file of entries for each model."""
    for path in sorted(folder.glob("*.json")):
        model = re.sub(r"^model_outputs_|_\d+shots?$", "", path.stem)
        where = str(path)
        try:
            entries: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
            for number, entry in enumerate(entries):
                where = f"{path}, entry {number}"
                _add_output(entry, model, recorded)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            keys = f"question_id, category, answer (a letter) and one of {', '.join(TEXTS)}"
            raise ConfigError(f"{where}: {error!r}; expected objects of {keys}") from error


def _add_output(entry: dict[str, Any], model: str, recorded: Mapping[_Question, _Samples]) -> None:
    key = next((key for key in TEXTS if key in entry), TEXTS[0])
    text = entry[key]
    letter = entry["pred"] if "pred" in entry else extract_choice(text, style="mmlu-pro")
    right = LETTERS[LETTERS.index(entry["answer"])]
    question = _Question(f"mmlu_pro/{entry['question_id']}", str(entry["category"]), right)
    usage = Usage(output_tokens=-(-len(text) // 4))  # four characters a token, rounded up
    recorded[question][model].append(Recorded(letter or "", "", usage))
