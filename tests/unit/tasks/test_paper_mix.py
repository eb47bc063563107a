"""The paper's training mix over small local parts, and how few problems are selected of many."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from openconductor.calls.worker import Worker
from openconductor.errors import GradingError, SandboxError, TaskError
from openconductor.pool import WorkerPool
from openconductor.reward import RewardFunction
from openconductor.sandboxes import open_sandbox
from openconductor.tasks import load_task
from openconductor.tasks.items import Benchmark, Item
from openconductor.tasks.paper_mix import PARTS, PROBLEMS, read_pass_rates
from openconductor.tasks.prompts import boxed, fenced
from openconductor.tasks.selection import POOL, select
from openconductor.types import Problem

WORDS = (
    "sum",
    "angle",
    "circle",
    "prime",
    "divisor",
    "matrix",
    "limit",
    "urn",
    "graph",
    "tree",
    "cell",
    "gene",
    "law",
)
JUDGES = {
    "math": "MathGrader",
    "mmlu": "ChoiceGrader",
    "rlpr": "FreeFormGrader",
    "livecodebench_v1": "CodeGrader",
}


def written(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    draw = random.Random(5)
    tests = json.dumps([{"input": "1\n", "output": "1\n", "testtype": "stdin"}])

    def rows(name: str, number: int) -> dict[str, object]:
        text = " ".join(draw.choices(WORDS, k=9))
        if name == "math":
            level, kind = f"Level {1 + number % 5}", ("Algebra", "Geometry")[number % 2]
            return {
                "problem": text,
                "level": level,
                "type": kind,
                "solution": f"It is \\boxed{{{number}}}.",
            }
        if name == "mmlu":
            choices = ["a", "b", "c", "d"]
            return {
                "question": text,
                "subject": f"s{number % 7}",
                "choices": choices,
                "answer": number % 4,
            }
        if name == "rlpr":
            return {"id": f"r{number}", "question": text, "answer": f"{number} m"}
        level, identity = (
            ("easy", "medium", "hard")[number % 3],
            "abc350_c" if number == 0 else f"abc{number}",
        )
        known = {
            "question_id": identity,
            "question_content": text,
            "platform": "atcoder",
            "difficulty": level,
        }
        return known | {"public_test_cases": tests, "private_test_cases": tests, "metadata": "{}"}

    for name in JUDGES:
        written(tmp_path / f"{name}.jsonl", [rows(name, number) for number in range(60)])
    return tmp_path


def mix(folder: Path, **options: object) -> Benchmark:
    return load_task("paper_mix", path=folder, **options)


def test_the_parts_are_mixed_in_equal_shares_and_every_id_is_unlike_the_others(
    folder: Path,
) -> None:
    assert (PROBLEMS, {part.name for part, _ in PARTS}) == (960, set(JUDGES))
    problems = mix(folder, limit=42).load()
    tasks = [problem.task for problem in problems]
    assert Counter(tasks) == {"math": 11, "mmlu": 11, "rlpr": 10, "livecodebench_v1": 10}
    assert tasks != sorted(tasks)  # the parts are shuffled into each other
    assert len({problem.id for problem in problems}) == 42
    assert all(problem.id.startswith(f"{problem.task}/") for problem in problems)


async def test_every_parts_answer_is_decided_by_its_own_judge_and_rewarded(folder: Path) -> None:
    task = mix(folder, limit=4)
    try:
        open_sandbox()
    except SandboxError as error:
        pytest.skip(f"the programs need a sandbox: {error}")
    right = {
        item.problem.id: item.canonical or fenced("print(input())") for item in task.read().items
    }
    wrong = {
        "math": boxed("-1"),
        "mmlu": "Answer: Z",
        "rlpr": boxed("-1 m"),
        "livecodebench_v1": fenced("print(2)"),
    }
    workers = [
        Worker(lambda _: right[problem.id], name="right"),
        Worker(lambda _: wrong[problem.task], name="wrong"),
    ]
    pool = WorkerPool(workers)
    score, graded = RewardFunction(pool, task.grader), list[tuple[str, list[float | None]]]()
    for problem in task.load():
        plans = (
            f'model_id = [{worker}]\nsubtasks = ["Go."]\naccess_list = [[]]' for worker in (0, 1)
        )
        graded.append((problem.task, [(await score(problem, plan)).reward for plan in plans]))
    assert dict(graded) == {name: [1.0, 0.5] for name in JUDGES}
    with pytest.raises(
        GradingError, match="got a problem of 'gym', expected one of math, mmlu, rlpr, livecode"
    ):
        await task.grader.grade(Problem("x", "", "", "gym"), "")


def test_the_hard_ones_of_all_subjects_are_chosen_and_none_that_is_faulty(folder: Path) -> None:
    items = mix(folder, limit=12).read().items
    kinds = {
        name: {item.problem.kind for item in items if item.problem.task == name} for name in JUDGES
    }
    assert (kinds["math"], kinds["livecodebench_v1"]) == ({"level 5"}, {"hard"})
    subjects = Counter(
        one.subject for one in mix(folder, limit=28).read().items if one.problem.task == "mmlu"
    )
    assert subjects == {f"s{n}": 1 for n in range(7)}
    everything = {problem.id for problem in mix(folder, limit=PROBLEMS).load()}
    assert len(everything) == 239
    assert "livecodebench_v1/abc350_c" not in everything


def test_measured_outcomes_say_what_is_hard(folder: Path) -> None:
    ids = [f"mmlu/auxiliary_train/{number}" for number in range(60)]
    rows = [
        {"id": name, "correct": name not in ids[20:24] or sample == 0}
        for name in ids
        for sample in range(4)
    ]
    outcomes = written(
        folder / "outcomes.jsonl",
        [*rows, {"id": "x", "correct": None}, {"id": "y", "pass_rate": 0.5}],
    )
    rates = read_pass_rates(outcomes)
    assert (rates[ids[20]], rates[ids[0]], "x" in rates, rates["y"]) == (0.25, 1.0, False, 0.5)
    assert (
        "mmlu/auxiliary_train: 4 of 60, by the pass rates of 60"
        in mix(folder, limit=16, outcomes=outcomes).source.notes
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"id": "a"},
            "line 2: field 'correct': got .* expected true, false or null, or a pass_rate",
        ),
        ({"id": "a", "correct": 1}, "field 'correct': got 1, expected true, false or null"),
        (
            {"id": "a", "pass_rate": 1.5},
            "field 'pass_rate': got 1.5, expected a number from 0 to 1",
        ),
        ({"correct": True}, "field 'id': missing"),
    ],
)
def test_an_outcome_that_is_none_is_an_error(
    tmp_path: Path, row: dict[str, object], message: str
) -> None:
    with pytest.raises(TaskError, match=message):
        read_pass_rates(written(tmp_path / "outcomes.jsonl", [{"id": "b", "correct": None}, row]))


def test_a_run_can_write_down_every_part(folder: Path) -> None:
    source = mix(folder, limit=8, seed=3).source
    assert (source.dataset, source.pinned, source.notes[0], source.problems) == (
        "mix",
        False,
        "seed 3",
        8,
    )
    assert "rlpr/train: 2 of 60, by diversity alone: nothing says how hard they are" in source.notes
    assert "math/train: 2 of 60, by their stated difficulty" in source.notes
    assert [len(part.sha256 or "") for part in source.parts] == [64] * 4
    assert json.loads(json.dumps(source.record())) == source.record()
    with pytest.raises(TaskError, match="got the split 'test', expected one of train"):
        mix(folder).load("test")
    (folder / "rlpr.jsonl").unlink()
    with pytest.raises(TaskError, match=r"rlpr\.jsonl: no such file"):
        mix(folder).load()


def item(name: str, text: str = "", *, subject: str = "", difficulty: float | None = None) -> Item:
    return Item(Problem(name, text or name, "", "demo"), subject=subject, difficulty=difficulty)


def names(items: list[Item]) -> list[str]:
    return [one.problem.id for one in items]


def test_the_same_seed_chooses_the_same_in_the_same_order_whatever_the_order_of_the_items() -> None:
    draw = random.Random(3)
    hard = (None, 0.0, 0.25, 0.5, 0.75, 1.0)
    texts = [" ".join(draw.choices(WORDS, k=8)) for _ in range(200)]
    items = [
        item(f"p{n}", text, subject=f"s{n % 5}", difficulty=draw.choice(hard))
        for n, text in enumerate(texts)
    ]
    chosen = names(select(items, 20, seed=7))
    assert len(set(chosen)) == 20
    assert (
        names(select(draw.sample(items, 200), 20, seed=7))
        == chosen
        != names(select(items, 20, seed=8))
    )
    assert set(names(select(items[:7], 20, seed=0))) == set(names(items[:7]))
    assert select([], 3, seed=0) == []


def test_those_that_tie_with_the_last_go_on_with_it() -> None:
    easy = [item(f"easy{number}", difficulty=0.0) for number in range(50)]
    hard = [item(f"hard{number}", difficulty=1.0) for number in range(30)]
    found = {name for seed in range(40) for name in names(select(easy + hard, 3, seed=seed))}
    assert found <= set(names(hard))
    assert (
        len(found) > POOL * 3
    )  # a pool of exactly 12 would leave 18 of the 30 hard ones without a chance


def test_measured_pass_rates_come_first_then_the_unmeasured_then_what_nobody_and_what_all_solved() -> (
    None
):
    items = [item(f"p{number}", difficulty=number / 99) for number in range(100)]
    rates = {f"p{number}": 0.9 - number / 100 for number in range(20)}
    assert set(names(select(items, 3, seed=0, pass_rates=rates))) <= {
        f"p{n}" for n in range(20 - POOL * 3, 20)
    }
    kinds = {"some": 0.5, "unmeasured": None, "none": 0.0, "all": 1.0}
    rates = {
        f"{kind}{n}": rate for kind, rate in kinds.items() if rate is not None for n in range(POOL)
    }
    for first, kind in enumerate(kinds):  # the hardest of what is left: each pool is one kind
        left = [item(f"{other}{n}") for other in list(kinds)[first:] for n in range(POOL)]
        found = {
            name
            for seed in range(9)
            for name in names(select(left, 1, seed=seed, pass_rates=rates))
        }
        assert {name.rstrip("0123456789") for name in found} == {kind}


@pytest.mark.parametrize("seed", range(5))
def test_subjects_take_turns_and_near_duplicates_come_last(seed: int) -> None:
    items = [item(f"a{n}", subject="algebra") for n in range(30)]
    items += [item(f"b{n}", subject="biology") for n in range(6)] + [item("c", subject="chemistry")]
    counts = Counter(one.subject for one in select(items, 12, seed=seed))
    assert (counts["chemistry"], counts["biology"] >= 5, counts.total()) == (1, True, 12)
    copies = [
        item(f"copy{n}", f"How many apples does Ann have after she eats {n} of them?")
        for n in range(10)
    ]
    texts = {
        "circle": "Find its area.",
        "prime": "Which prime divides it?",
        "matrix": "Invert this matrix.",
    }
    others = [item(name, text) for name, text in texts.items()]
    assert set(texts) < set(names(select(copies + others, 4, seed=seed)))
