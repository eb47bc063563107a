"""The verdict in a world whose truth is known: the short form of ``benchmarks.verdict``."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.verdict import judge_all, main, read_lines
from benchmarks.verdict_cases import CASES, FRAUD_NAMES, FRAUDS, REPEATED
from benchmarks.verdict_power import judge_known

SHORT = (
    "told plainly",
    "told by access lists",
    "told by a code that hangs on the question",
    "told behind a guard",
    "one strong plan, varied for show",
    "one sentence behind a guard",
    "one data set under ten names",
    "a better planner that is named as an ablation",
)
HONEST = ("routing by topic", "routing, yes or no", "two seeds", "one workflow for all")


@pytest.mark.parametrize("name", SHORT)
def test_a_fraud_is_not_certified_whatever_was_replayed(name: str) -> None:
    case = CASES[name]
    for replays in (True, False):
        assert case.is_right(case.judge(1, replays=replays, asked=False).label)


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_planner_is_called_what_it_is_if_its_plans_were_played(name: str) -> None:
    case = CASES[name]
    assert case.judge(1, replays=True, asked=True).label in case.labels
    unplayed = case.judge(1, replays=False, asked=True)
    assert unplayed.label not in FRAUD_NAMES
    assert unplayed.missing is None or unplayed.missing.replays


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_no_case_is_called_by_a_wrong_name_on_most_of_five_seeds(name: str) -> None:
    case = CASES[name]
    labels = [case.judge(seed, replays=True, asked=True).label for seed in range(5)]
    if name in FRAUDS:
        assert all(case.is_right(label) for label in labels), labels
    else:
        assert sum(case.is_right(label) for label in labels) >= 3, labels
        assert not set(labels) & set(FRAUD_NAMES)


def test_a_planner_of_no_gain_is_not_certified_and_one_of_ten_points_is() -> None:
    assert judge_known(0.0, 1000, 2, seed=1) != "orchestration gain"
    assert judge_known(0.10, 1000, 2, seed=1) == "orchestration gain"


def test_the_script_continues_where_it_was_stopped(tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    name = "routed at random among equals"
    first = judge_all([name], 1, file)
    with file.open("a", encoding="utf-8") as lines:
        lines.write('{"case": "cut')
    assert read_lines(file) == first
    file.write_text(file.read_text("utf-8").replace("no gain", "known"), encoding="utf-8")
    assert judge_all([name], 1, file) == read_lines(file)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--power", "--again"], "not allowed with argument"),
        (["--case", next(iter(REPEATED))], "require --again"),
        (["--power", "--case", next(iter(CASES))], "takes no --case"),
    ],
)
def test_options_that_exclude_each_other_are_refused_before_anything_is_judged(
    options: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["verdict", *options])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert said in capsys.readouterr().err
