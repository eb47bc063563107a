"""The paper's training mix over small local parts, and the selection of few problems of many."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from written_rows import write_rows

from openconductor.errors import GradingError, SandboxError, TaskError
from openconductor.reward import RewardFunction
from openconductor.sandboxes import open_sandbox
from openconductor.tasks import load_task
from openconductor.tasks.data.items import Benchmark, Item
from openconductor.tasks.data.selection import POOL, select
from openconductor.tasks.paper_mix import PARTS, PROBLEMS, read_pass_rates
from openconductor.tasks.prompts import boxed, fenced
from openconductor.testing import pool_of
from openconductor.types import Problem

_WORDS = "sum angle circle prime divisor matrix limit urn graph tree cell gene law"
WORDS = _WORDS.split()
TESTS = json.dumps([{"input": "1\n", "output": "1\n", "testtype": "stdin"}])
SIZE = 60


def math_row(number: int) -> dict[str, object]:
    level = f"Level {1 + number % 5}"
    kind = ("Algebra", "Geometry")[number % 2]
    return {"level": level, "type": kind, "solution": f"It is \\boxed{{{number}}}."}


def mmlu_row(number: int) -> dict[str, object]:
    return {"subject": f"s{number % 7}", "choices": ["a", "b", "c", "d"], "answer": number % 4}


def rlpr_row(number: int) -> dict[str, object]:
    return {"id": f"r{number}", "answer": f"{number} m"}


def livecodebench_row(number: int) -> dict[str, object]:
    identifier = f"abc{number}" if number else "abc350_c"  # the first one is faulty
    difficulty = ("easy", "medium", "hard")[number % 3]
    tests = {"public_test_cases": TESTS, "private_test_cases": TESTS}
    row = {"question_id": identifier, "difficulty": difficulty}
    return {**row, **tests, "platform": "atcoder", "metadata": "{}"}


MAKERS = {
    "math": (math_row, "problem"),
    "mmlu": (mmlu_row, "question"),
    "rlpr": (rlpr_row, "question"),
    "livecodebench_v1": (livecodebench_row, "question_content"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    draw = random.Random(5)
    for name, (make, field) in MAKERS.items():
        texts = [" ".join(draw.choices(WORDS, k=9)) for _ in range(SIZE)]
        rows = [{**make(number), field: text} for number, text in enumerate(texts)]
        write_rows(tmp_path / f"{name}.jsonl", rows)
    return tmp_path


def mix(folder: Path, **options: object) -> Benchmark:
    return load_task("paper_mix", path=folder, **options)


def test_the_parts_are_mixed_in_equal_shares_and_every_id_is_unlike_the_others(
    folder: Path,
) -> None:
    assert PROBLEMS == 960
    assert {part.name for part, _ in PARTS} == MAKERS.keys()
    problems = mix(folder, limit=42).load()
    tasks = [problem.task for problem in problems]
    assert Counter(tasks) == {"math": 11, "mmlu": 11, "rlpr": 10, "livecodebench_v1": 10}
    assert tasks != sorted(tasks)  # the parts are shuffled into each other
    assert len({problem.id for problem in problems}) == 42
    assert all(problem.id.startswith(f"{problem.task}/") for problem in problems)


WRONG = {
    "math": boxed("-1"),
    "mmlu": "Answer: Z",
    "rlpr": boxed("-1 m"),
    "livecodebench_v1": fenced("print(2)"),
}
PLANS = [f'model_id = [{worker}]\nsubtasks = ["Go."]\naccess_list = [[]]' for worker in (0, 1)]


async def test_every_parts_answer_is_decided_by_its_own_judge_and_rewarded(folder: Path) -> None:
    task = mix(folder, limit=4)
    try:
        open_sandbox()
    except SandboxError as error:
        pytest.skip(f"the programs need a sandbox: {error}")
    rewards: dict[str, list[float | None]] = {}
    for item in task.read().items:
        problem = item.problem
        pool = pool_of(item.canonical or fenced("print(input())"), WRONG[problem.task])
        score = RewardFunction(pool, task.grader)
        rewards[problem.task] = [(await score(problem, plan)).reward for plan in PLANS]
    assert rewards == {name: [1.0, 0.5] for name in MAKERS}
    message = "got a problem of 'gym', expected one of math, mmlu, rlpr, livecode"
    with pytest.raises(GradingError, match=message):
        await task.grader.grade(Problem("x", "", "", "gym"), "")


def test_the_hard_ones_of_all_subjects_are_chosen_and_none_that_is_faulty(folder: Path) -> None:
    kinds: dict[str, set[str]] = {}
    for problem in mix(folder, limit=12).load():
        kinds.setdefault(problem.task, set()).add(problem.kind)
    assert kinds["math"] == {"level 5"}
    assert kinds["livecodebench_v1"] == {"hard"}
    items = mix(folder, limit=28).read().items
    subjects = Counter(item.subject for item in items if item.problem.task == "mmlu")
    assert subjects == {f"s{n}": 1 for n in range(7)}
    everything = {problem.id for problem in mix(folder, limit=PROBLEMS).load()}
    assert len(everything) == 4 * SIZE - 1
    assert "livecodebench_v1/abc350_c" not in everything


def test_measured_outcomes_say_what_is_hard(folder: Path) -> None:
    ids = [f"mmlu/auxiliary_train/{number}" for number in range(SIZE)]
    rows: list[dict[str, object]] = [{"id": name, "correct": True} for name in ids]
    for name in ids:
        rows += [{"id": name, "correct": name not in ids[20:24]}] * 3
    rows += [{"id": "x", "correct": None}, {"id": "y", "pass_rate": 0.5}]
    outcomes = write_rows(folder / "outcomes.jsonl", rows)
    rates = read_pass_rates(outcomes)
    assert rates[ids[20]] == 0.25
    assert rates[ids[0]] == 1.0
    assert rates["y"] == 0.5
    assert "x" not in rates
    notes = mix(folder, limit=16, outcomes=outcomes).source.notes
    assert "mmlu/auxiliary_train: 4 of 60, by the pass rates of 60" in notes


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "a"}, "line 2: field 'correct': got .* expected true, false or null, or a pass"),
        ({"id": "a", "correct": 1}, "field 'correct': got 1, expected true, false or null"),
        ({"id": "a", "pass_rate": 1.5}, "field 'pass_rate': got 1.5, expected a number from 0"),
        ({"correct": True}, "field 'id': missing"),
    ],
)
def test_an_invalid_outcome_is_an_error(tmp_path: Path, row: object, message: str) -> None:
    outcomes = write_rows(tmp_path / "outcomes.jsonl", [{"id": "b", "correct": None}, row])
    with pytest.raises(TaskError, match=message):
        read_pass_rates(outcomes)


def test_a_run_can_write_down_every_part(folder: Path) -> None:
    source = mix(folder, limit=8, seed=3).source
    assert not source.pinned
    assert (source.dataset, source.problems) == ("mix", 8)
    assert source.notes[0] == "seed 3"
    assert "rlpr/train: 2 of 60, by diversity alone: nothing says how hard they are" in source.notes
    assert "math/train: 2 of 60, by their stated difficulty" in source.notes
    sums = [part.sha256 or "" for part in source.parts]
    assert [len(text) for text in sums] == [64] * 4
    assert json.loads(json.dumps(source.record())) == source.record()
    with pytest.raises(TaskError, match="got the split 'test', expected one of train"):
        mix(folder).load("test")
    (folder / "rlpr.jsonl").unlink()
    with pytest.raises(TaskError, match=r"rlpr\.jsonl: no such file"):
        mix(folder).load()


# ── selection ─────────────────────────────────────────────────────────────────────────────────────
def item(name: str, text: str = "", *, subject: str = "", difficulty: float | None = None) -> Item:
    return Item(Problem(name, text or name, "", "demo"), subject=subject, difficulty=difficulty)


def chosen(items: Sequence[Item], count: int, **options) -> list[str]:
    return [item.problem.id for item in select(items, count, **options)]


def test_the_same_seed_chooses_the_same_in_the_same_order_whatever_the_order_of_the_items() -> None:
    draw = random.Random(3)
    items: list[Item] = []
    for n in range(200):
        text = " ".join(draw.choices(WORDS, k=8))
        hardness = draw.choice((None, 0.0, 0.25, 0.5, 0.75, 1.0))
        items.append(item(f"p{n}", text, subject=f"s{n % 5}", difficulty=hardness))
    first = chosen(items, 20, seed=7)
    assert len(set(first)) == 20
    assert chosen(draw.sample(items, 200), 20, seed=7) == first
    assert chosen(items, 20, seed=8) != first
    all_of_few = chosen(items[:7], 20, seed=0)
    assert sorted(all_of_few) == [f"p{n}" for n in range(7)]
    assert select([], 3, seed=0) == []


def test_those_that_tie_with_the_last_go_on_with_it() -> None:
    easy = [item(f"easy{number}", difficulty=0.0) for number in range(50)]
    hard = [item(f"hard{number}", difficulty=1.0) for number in range(30)]
    names: set[str] = set()
    for seed in range(40):
        names.update(chosen(easy + hard, 3, seed=seed))
    assert all(name.startswith("hard") for name in names)
    # A pool of exactly 12 would leave 18 of the 30 hard ones without a chance.
    assert len(names) > POOL * 3


def test_unmeasured_problems_come_next_then_those_that_nobody_and_that_all_solved() -> None:
    rates: dict[str, float] = {}
    for kind, rate in (("some", 0.5), ("none", 0.0), ("all", 1.0)):
        rates |= {f"{kind}{n}": rate for n in range(POOL)}
    kinds = ["some", "unmeasured", "none", "all"]
    for place, kind in enumerate(kinds):  # the hardest of what is left: each pool is one kind
        left = [item(f"{other}{n}") for other in kinds[place:] for n in range(POOL)]
        for seed in range(9):
            (name,) = chosen(left, 1, seed=seed, pass_rates=rates)
            assert name.rstrip("0123456789") == kind


@pytest.mark.parametrize("seed", range(5))
def test_subjects_take_turns_and_near_duplicates_come_last(seed: int) -> None:
    items = [item(f"a{n}", subject="algebra") for n in range(30)]
    items += [item(f"b{n}", subject="biology") for n in range(6)]
    items.append(item("c", subject="chemistry"))
    counts = Counter(name[0] for name in chosen(items, 12, seed=seed))
    assert counts["c"] == 1
    assert counts["b"] >= 5
    assert counts.total() == 12
    copy = "How many apples does Ann have after she eats {} of them?"
    items = [item(f"copy{n}", copy.format(n)) for n in range(10)]
    items.append(item("circle", "Find its area."))
    items.append(item("prime", "Which prime divides it?"))
    items.append(item("matrix", "Invert this matrix."))
    assert {"circle", "prime", "matrix"} < set(chosen(items, 4, seed=seed))
