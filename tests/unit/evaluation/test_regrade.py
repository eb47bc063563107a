"""Grading again what is stored: nobody is called, and what moves is listed and kept beside what it was."""

from __future__ import annotations

import asyncio
import csv
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from scripted import Adder, pool_of, write_sums

from openconductor.errors import ConfigError, RateLimited
from openconductor.evaluation import runner
from openconductor.evaluation.config import EvalConfig, make_eval_config
from openconductor.evaluation.regrade import Move, Regraded, regrade
from openconductor.graders.math import MathGrader
from openconductor.journal import JournalReader
from openconductor.pool import WorkerPool
from openconductor.types import Grade, Problem


@pytest.fixture
def adders() -> dict[str, Adder]:
    return {"ada": Adder(), "bob": Adder(1)}


@pytest.fixture
def folder(tmp_path: Path, adders: dict[str, Adder], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run: ada is right (one of hers failed), bob is wrong."""

    def load(config: EvalConfig) -> WorkerPool:
        return pool_of(**adders)

    monkeypatch.setattr(runner, "load_pool", load)
    adders["ada"].failing[3] = RateLimited("too many")
    path = write_sums(tmp_path / "test.jsonl", range(1, 5))
    told = {
        "systems": ["worker:ada", "worker:bob"],
        "task": [{"name": "gsm8k", "path": str(path)}],
        "pool": "pool.toml",
    }
    asyncio.run(runner.run_grid(make_eval_config(told, where="test"), tmp_path / "run"))
    for adder in adders.values():
        adder.asked.clear()
    return tmp_path / "run"


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Problem, str], Grade]], None]:
    """Today's grader is another one."""

    def replace(verdict: Callable[[Problem, str], Grade]) -> None:
        async def grade(self: MathGrader, problem: Problem, answer: str) -> Grade:
            return verdict(problem, answer)

        monkeypatch.setattr(MathGrader, "grade", grade)

    return replace


def again(folder: Path) -> Regraded:
    return asyncio.run(regrade(folder))


def accuracies(folder: Path) -> dict[str, str]:
    rows = csv.DictReader((folder / "table.csv").read_text("utf-8").splitlines())
    return {row["system"]: row["accuracy"] for row in rows}


def test_the_same_grader_moves_nothing_and_writes_nothing(folder: Path, adders: dict[str, Adder]) -> None:
    before = (folder / "table.json").read_bytes()
    done = again(folder)
    assert (done.graded, done.moves) == (7, ())  # one of eight has no answer
    assert (folder / "table.json").read_bytes() == before
    with JournalReader(folder / "journal.sqlite") as journal:
        assert len(list(journal.outcomes(history=True))) == 8
    assert adders["ada"].asked == adders["bob"].asked == []


def test_verdicts_that_moved_are_listed_and_the_tables_follow(
    folder: Path, adders: dict[str, Adder], judge: Callable[[Callable[[Problem, str], Grade]], None]
) -> None:
    assert accuracies(folder) == {"worker:ada": "1.0", "worker:bob": "0.0"}

    def lenient(problem: Problem, answer: str) -> Grade:
        if problem.id.endswith("3"):
            return Grade(None, note="no sandbox")
        return Grade(True, "7", note="close enough")

    judge(lenient)
    done = again(folder)
    assert done.graded == 7
    assert done.moves[0] == Move("worker:ada", "gsm8k", done.moves[0].problem, 0, True, None, "no sandbox")
    assert [(move.system, move.problem[-1], move.before, move.now) for move in done.moves[1:]] == [
        ("worker:bob", "0", False, True),
        ("worker:bob", "1", False, True),
        ("worker:bob", "2", False, True),
        ("worker:bob", "3", False, None),
    ]
    assert accuracies(folder) == {"worker:ada": "1.0", "worker:bob": "1.0"}
    masked = [record for record in done.results.records if record.status == "ungraded"]
    assert [(record.system, record.note) for record in masked] == [
        ("worker:ada", "no sandbox"),
        ("worker:bob", "no sandbox"),
    ]
    failed = [record.error for record in done.results.records if record.status == "failed"]
    assert failed == ["RateLimited: worker 'ada': too many"]  # what has no answer stays what it is
    assert adders["ada"].asked == adders["bob"].asked == []


def test_only_the_verdict_is_new_and_the_old_one_stays_in_the_journal(
    folder: Path, judge: Callable[[Callable[[Problem, str], Grade]], None]
) -> None:
    before = again(folder).results
    judge(lambda problem, answer: Grade(False, "0", note="stricter"))
    after = again(folder).results
    for old, new in zip(before.records, after.records, strict=True):
        assert (old.answer, old.usage, old.seconds, old.rounds, old.episode, old.calls) == (
            *(new.answer, new.usage, new.seconds, new.rounds, new.episode, new.calls),
        )
    with JournalReader(folder / "journal.sqlite") as journal:
        history = list(journal.outcomes(history=True))
    assert len(history) == 8 + 7
    assert [one.record["correct"] for one in history[:8]].count(True) == 3


def test_other_questions_than_those_that_were_asked_are_refused(folder: Path, tmp_path: Path) -> None:
    write_sums(tmp_path / "test.jsonl", range(2, 6))
    with pytest.raises(ConfigError, match="its questions are others now: gsm8k: digest: got"):
        again(folder)


def test_a_folder_without_an_evaluation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected the folder of an evaluation"):
        again(tmp_path)
