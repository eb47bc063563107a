"""Replay tables of recorded answers: from an evaluation, or from MMLU-Pro's published outputs."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from datetime import date
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from openconductor.errors import ConfigError
from openconductor.evaluation.headroom import alone
from openconductor.evaluation.records import CONFIG, Results
from openconductor.evaluation.sheets import load_sheets
from openconductor.graders.choice import LETTERS, ChoiceGrader, extract_choice
from openconductor.providers.replay_pool import AGGREGATORS, SPLITS, cells_of, write_table
from openconductor.types import Usage

TEXTS = ("model_outputs", "generated_text", "response")
"""The keys of a model's whole answer in MMLU-Pro's files."""


class Recorded(NamedTuple):
    """A recorded question."""

    id: str
    category: str
    right: str


Samples = dict[str, list[tuple[str, Usage]]]
"""By model: the letter of each sample, and its usage."""


def write_replay_table(source: Path, out: Path) -> dict[str, object]:
    """Write a replay table from a folder of recorded answers; return its figures.

    Raises:
        ConfigError: no question was answered by all models, or a file has another form.
    """
    recorded: dict[Recorded, Samples] = defaultdict(lambda: defaultdict(list))
    if (source / CONFIG).is_file():
        _add_evaluation(source, recorded)
    else:
        _add_outputs(source, recorded)
    names: dict[str, None] = {}
    most = 0
    for samples in recorded.values():
        names |= dict.fromkeys(samples)
        most = max(most, *(len(answers) for answers in samples.values()))
    models = [name for name in names if name not in AGGREGATORS]
    rows: list[dict[str, str]] = []
    for question, samples in sorted(recorded.items()):
        if all(len(samples[model]) == most for model in models):
            rows.append(_row(question, models, samples))
    if not rows or not models:
        raise ConfigError(
            f"{source}: no question was answered by all models; expected the folder of an `eval` "
            "of workers, or of JSON files"
        )
    write_table(out, rows, source=source.name, licence="unknown", date=date.today().isoformat())
    return {
        "questions": len(rows),
        "left_out": len(recorded) - len(rows),
        "models": models,
        "samples": most,
    }


def _row(question: Recorded, models: list[str], samples: Samples) -> dict[str, str]:
    row = {
        "id": question.id,
        "category": question.category,
        "split": split_of(question.id),
        "answer": question.right,
    }
    for model in models:
        row |= cells_of(model, samples[model])
    return row


def split_of(name: str) -> str:
    """Return the split of a question, which follows from its id."""
    return (*SPLITS, "train", "train")[blake2b(name.encode()).digest()[0] % 5]


def _add_evaluation(folder: Path, recorded: Mapping[Recorded, Samples]) -> None:
    """Add the answers of an evaluation's workers; undecided ones count as not answered."""
    results = Results.load(folder)
    sheet, *others = load_sheets(results.config).values()
    if others or not isinstance(sheet.grader, ChoiceGrader):
        tasks = ", ".join(results.tasks)
        raise ConfigError(f"{folder}: got the tasks {tasks}, expected one of multiple choice")
    questions: dict[str, Recorded] = {}
    for problem in sheet.problems:
        category = problem.kind or problem.task
        questions[problem.id] = Recorded(problem.id, category, str(problem.reference))
    for worker, records in alone((*results.records, *results.learning)).items():
        for record in sorted(records, key=lambda record: record.sample):
            if record.task == sheet.name and record.correct is not None:
                samples = recorded[questions[record.problem]]
                samples[worker].append((record.extracted or "", record.usage))


def _add_outputs(folder: Path, recorded: Mapping[Recorded, Samples]) -> None:
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


def _add_output(entry: dict[str, Any], model: str, recorded: Mapping[Recorded, Samples]) -> None:
    key = next((key for key in TEXTS if key in entry), TEXTS[0])
    text = entry[key]
    letter = entry["pred"] if "pred" in entry else extract_choice(text, style="mmlu-pro")
    right = LETTERS[LETTERS.index(entry["answer"])]
    question = Recorded(f"mmlu_pro/{entry['question_id']}", str(entry["category"]), right)
    usage = Usage(output_tokens=-(-len(text) // 4))  # four characters a token, rounded up
    recorded[question][model].append((letter or "", usage))
