"""The shelf: names, options, and what every task must offer."""

from __future__ import annotations

import re

import pytest

from openconductor.errors import ConfigError
from openconductor.tasks import TASKS, load_task
from openconductor.tasks.hub import COMMIT

NAMES = {
    *("math", "math500", "mmlu", "rlpr", "livecodebench_v1", "livecodebench_v6", "gpqa_diamond", "aime25"),
    *("bigcodebench_hard", "gsm8k", "humaneval", "mbpp", "gym", "paper_mix"),
}


def test_the_shelf_holds_the_papers_tasks_and_the_common_ones() -> None:
    assert set(TASKS) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES - {"gym", "paper_mix"}))
def test_a_pin_is_a_whole_commit_and_a_digest_a_whole_sha256(name: str) -> None:
    dataset = load_task(name).dataset
    assert dataset is not None
    assert dataset.revision is None or COMMIT.fullmatch(dataset.revision)
    for files in dataset.splits.values():
        assert all(file.path.endswith((".parquet", ".jsonl", ".csv")) for file in files)
        assert all(file.sha256 is None or re.fullmatch(r"[0-9a-f]{64}", file.sha256) for file in files)
        assert dataset.revision is not None or all(file.sha256 is None and file.rows is None for file in files)


def test_only_rlpr_is_not_pinned() -> None:
    datasets = {name: load_task(name).dataset for name in NAMES}
    assert {name for name, one in datasets.items() if one is not None and one.revision is None} == {"rlpr"}


def test_an_unknown_task_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"task: got 'mat500', expected one of aime25, .*; nearest: 'math500'"):
        load_task("mat500")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limmit": 3}, "task math500: got the option 'limmit', expected one of path, .*; nearest: 'limit'"),
        ({"limit": "3"}, "option limit: got '3', expected an integer"),
        ({"limit": True}, "option limit: got True, expected an integer"),
        ({"limit": 0}, "option limit: got 0, expected 1 or more"),
        ({"seed": 1.5}, "option seed: got 1.5, expected an integer"),
        ({"path": ""}, "option path: got '', expected a text"),
        ({"split": "tset"}, "got the split 'tset', expected one of test"),
        ({"path": "a.jsonl", "revision": "main"}, "option revision: got 'main' beside path"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_read(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_task("math500", **options)


def test_the_release_of_livecodebench_holds_v1_and_what_v6_added() -> None:
    first, sixth = load_task("livecodebench_v1").dataset, load_task("livecodebench_v6").dataset
    assert first is not None
    assert sixth is not None
    release = sixth.splits["release"]
    assert release[0] == first.splits["test"][0]
    assert release[-1] == sixth.splits["test"][0]
    assert [file.path for file in release] == ["test.jsonl", *(f"test{number}.jsonl" for number in range(2, 7))]
    assert sum(file.rows or 0 for file in release) == 1055
