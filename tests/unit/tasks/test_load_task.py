"""The shelf: names, options, and the facts that every task must have."""

from __future__ import annotations

import re
from typing import Any

import pytest
from written_rows import read_cases

from openconductor.errors import ConfigError
from openconductor.tasks import TASKS, load_task
from openconductor.tasks.data.dataset import COMMIT, Dataset

NAMES = (
    "aime25 bigcodebench_hard gpqa_diamond gsm8k gym humaneval livecodebench_v1 livecodebench_v6"
)
NAMES += " math math500 mbpp mmlu paper_mix replay rlpr specialists"


def test_the_shelf_holds_the_papers_tasks_and_only_rlpr_is_not_pinned() -> None:
    assert sorted(TASKS) == NAMES.split()
    datasets: dict[str, Dataset] = {}
    for name in TASKS:
        dataset = load_task(name).dataset
        if dataset is not None:
            datasets[name] = dataset
    assert TASKS.keys() - datasets.keys() == {"gym", "paper_mix", "replay", "specialists"}
    assert [name for name in datasets if datasets[name].revision is None] == ["rlpr"]
    for dataset in datasets.values():
        assert dataset.revision is None or COMMIT.fullmatch(dataset.revision)
        for file in (file for files in dataset.splits.values() for file in files):
            assert file.name.endswith((".parquet", ".jsonl", ".csv"))
            assert file.sha256 is None or re.fullmatch(r"[0-9a-f]{64}", file.sha256)
            assert dataset.revision is not None or (file.sha256, file.rows) == (None, None)


def test_the_release_of_livecodebench_holds_v1_and_what_v6_added() -> None:
    first, sixth = load_task("livecodebench_v1").dataset, load_task("livecodebench_v6").dataset
    release = sixth.splits["release"]
    assert (release[:1], release[-1:]) == (first.splits["test"], sixth.splits["test"])
    assert sum(file.rows or 0 for file in release) == 1055


@pytest.mark.parametrize("case", read_cases("wrong_options"), ids=lambda case: case["message"])
def test_a_wrong_option_is_refused_before_anything_is_read(case: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=case["message"]):
        load_task(case["task"], **case["options"])
