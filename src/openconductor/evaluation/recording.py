"""Make replay tables, from which workers can be replayed, of an evaluation or of MMLU-Pro's published outputs."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from datetime import date
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

from openconductor.errors import ConfigError
from openconductor.evaluation.headroom import alone
from openconductor.evaluation.records import CONFIG, Results
from openconductor.evaluation.sheets import load_sheets
from openconductor.graders.choice import LETTERS, ChoiceGrader, extract_choice
from openconductor.providers.replay_pool import AGGREGATORS, SPLITS, cells_of, write_table
from openconductor.types import Usage

TEXTS = ("model_outputs", "generated_text", "response")
"""What MMLU-Pro's files call a model's whole answer."""
Recorded = dict[tuple[str, str, str], dict[str, list[tuple[str, Usage]]]]
"""By question (its id, category and right letter) and by model: the letter of each sample, and what it used."""


def write_replay_table(source: Path, out: Path) -> dict[str, object]:
    """Write what an evaluation or published outputs recorded as a replay table; return what is in it."""
    recorded: Recorded = defaultdict(lambda: defaultdict(list))
    (_add_evaluation if (source / CONFIG).is_file() else _add_outputs)(source, recorded)
    models = [one for one in dict.fromkeys(chain(*recorded.values())) if one not in AGGREGATORS]
    most = max((len(samples) for said in recorded.values() for samples in said.values()), default=0)
    rows: list[dict[str, str]] = []
    for (name, category, right), said in sorted(recorded.items()):
        if all(len(said[model]) == most for model in models):
            rows.append(
                {"id": name, "category": category, "split": split_of(name), "answer": right}
            )
            for model in models:
                rows[-1] |= cells_of(model, said[model])
    if not (rows and models):
        raise ConfigError(
            f"{source}: got no question that all answered; expected an `eval` of workers, or JSON files"
        )
    write_table(out, rows, source=source.name, licence="unknown", date=date.today().isoformat())
    return {
        "questions": len(rows),
        "left_out": len(recorded) - len(rows),
        "models": models,
        "samples": most,
    }


def split_of(name: str) -> str:
    """The split of a question, by its id alone."""
    return (*SPLITS, "train", "train")[blake2b(name.encode()).digest()[0] % 5]


def _add_evaluation(folder: Path, recorded: Recorded) -> None:
    """What the workers of an evaluation answered alone; what could not be decided counts as not answered."""
    results = Results.load(folder)
    sheet, *others = load_sheets(results.config).values()
    if others or not isinstance(sheet.grader, ChoiceGrader):
        raise ConfigError(
            f"{folder}: got the tasks {', '.join(results.tasks)}, expected one of multiple choice"
        )
    keys = {one.id: (one.id, one.kind or one.task, str(one.reference)) for one in sheet.problems}
    for worker, records in alone((*results.records, *results.learning)).items():
        for record in sorted(records, key=lambda one: one.sample):
            if record.task == sheet.name and record.correct is not None:
                recorded[keys[record.problem]][worker].append(
                    (record.extracted or "", record.usage)
                )


def _add_outputs(folder: Path, recorded: Recorded) -> None:
    """What MMLU-Pro's published outputs say: lists of objects, a question each, with a text and maybe its letter."""
    for path in sorted(folder.glob("*.json")):
        model, where = re.sub(r"^model_outputs_|_\d+shots?$", "", path.stem), str(path)
        try:
            entries: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
            for number, one in enumerate(entries):
                where = f"{path}, entry {number}"
                text = one[next(filter(one.__contains__, TEXTS), TEXTS[0])]
                letter = one["pred"] if "pred" in one else extract_choice(text, style="mmlu-pro")
                key = (
                    f"mmlu_pro/{one['question_id']}",
                    str(one["category"]),
                    LETTERS[LETTERS.index(one["answer"])],
                )
                recorded[key][model].append((letter or "", Usage(output_tokens=-(-len(text) // 4))))
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            expected = (
                f"objects of question_id, category, answer (a letter) and one of {', '.join(TEXTS)}"
            )
            raise ConfigError(f"{where}: {error!r}; expected {expected}") from error
