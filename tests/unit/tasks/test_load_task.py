"""The shelf: names, options, and what every task must offer."""

from __future__ import annotations

import re

import pytest

from openconductor.errors import ConfigError
from openconductor.tasks import TASKS, load_task
from openconductor.tasks.dataset import COMMIT

NAMES = {
    *(
        "math",
        "math500",
        "mmlu",
        "rlpr",
        "livecodebench_v1",
        "livecodebench_v6",
        "gpqa_diamond",
        "aime25",
    ),
    *("bigcodebench_hard", "gsm8k", "humaneval", "mbpp", "gym", "paper_mix", "replay"),
}


def test_the_shelf_holds_the_papers_tasks_and_only_rlpr_is_not_pinned() -> None:
    assert set(TASKS) == NAMES
    datasets = {name: load_task(name).dataset for name in NAMES}
    assert {name for name, one in datasets.items() if one is None} == {"gym", "paper_mix", "replay"}
    assert {name for name, one in datasets.items() if one is not None and one.revision is None} == {
        "rlpr"
    }
    for dataset in filter(None, datasets.values()):
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


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mat500", {}, r"task: got 'mat500', expected one of aime25, .*; nearest: 'math500'"),
        (
            "math500",
            {"limmit": 3},
            "task math500: got the option 'limmit', expected one of path, .*; nearest: 'limit'",
        ),
        ("math500", {"limit": "3"}, "option limit: got '3', expected an integer"),
        ("math500", {"limit": True}, "option limit: got True, expected an integer"),
        ("math500", {"limit": 0}, "option limit: got 0, expected 1 or more"),
        ("math500", {"seed": 1.5}, "option seed: got 1.5, expected an integer"),
        ("math500", {"path": ""}, "option path: got '', expected a text"),
        ("math500", {"split": "tset"}, "got the split 'tset', expected one of test"),
        (
            "math500",
            {"path": "a.jsonl", "revision": "main"},
            "option revision: got 'main' and a path",
        ),
        ("gym", {"split": "dev"}, "got the split 'dev', expected one of train, validation, test"),
        ("gym", {"limit": 0}, "option limit: got 0, expected 1 or more"),
        ("paper_mix", {"limit": 3}, "option limit: got 3, expected 4 or more"),
        ("paper_mix", {"split": "test"}, "got the split 'test', expected one of train"),
        (
            "paper_mix",
            {"revision": "main"},
            "got the option 'revision', expected one of path, limit, seed, split, out",
        ),
        (
            "paper_mix",
            {"path": "no.jsonl"},
            r"got the path no.jsonl, expected a folder of math\.jsonl, mmlu\.jsonl",
        ),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_read(
    name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_task(name, **options)
