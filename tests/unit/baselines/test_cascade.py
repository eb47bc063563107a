"""Cascades ask more only where the first answers differ; an early vote stops when it is decided."""

from __future__ import annotations

from typing import Any

import pytest

from openconductor.baselines import make_baseline
from openconductor.baselines.observed import Observations
from openconductor.errors import ConfigError, Refused
from openconductor.pool import Worker, WorkerPool
from openconductor.types import Message


def says(text: str) -> Any:
    def answer(_messages: list[Message]) -> str:
        return f"Answer: {text}"

    return answer


def declines(_messages: list[Message]) -> str:
    raise Refused("no")


def in_turn(*texts: str) -> WorkerPool:
    """Return a pool of one worker that says these one after the other."""
    supply = iter(texts)

    def answer(_messages: list[Message]) -> str:
        return f"Answer: {next(supply)}"

    return WorkerPool([Worker(answer, name="ann")])


def pool_of(**workers: Any) -> WorkerPool:
    return WorkerPool([Worker(answer, name=name) for name, answer in workers.items()])


async def played(pool: WorkerPool, name: str, **options: object) -> tuple[str | None, list[int]]:
    """Return the answer, and the workers' answers that were asked for in each round."""
    episode = await make_baseline(name, pool, **options).ask("How many?")
    return episode.answer, [len(one.workflow or ()) for one in episode.rounds]


@pytest.mark.parametrize(
    ("answers", "answer", "asked"),
    [
        ("4 4 5 5", "4", [2]),
        ("4 5 5 6", "5", [2, 2]),
        ("4 5 6 7", "4", [2, 2]),
        ("4 - 5 5", "5", [2, 2]),
        ("- 4 - -", "4", [2, 2]),
    ],
)
async def test_two_that_agree_are_enough(answers: str, answer: str, asked: list[int]) -> None:
    workers: dict[str, Any] = {}
    for place, text in enumerate(answers.split()):
        workers[f"w{place}"] = declines if text == "-" else says(text)
    assert await played(pool_of(**workers), "cascade") == (f"Answer: {answer}", asked)


async def test_the_first_are_the_best_observed_or_those_that_are_named() -> None:
    pool = pool_of(w0=says("0"), w1=says("1"), w2=says("1"))
    seen = Observations(("?", "!"), ("w0", "w1", "w2"), ((0, 1, 1), (0, 1, 0)))
    assert await played(pool, "cascade", observations=seen) == ("Answer: 1", [2])
    assert await played(pool, "cascade") == ("Answer: 1", [2, 1])
    assert await played(pool, "cascade", workers="w2+w1+w0") == ("Answer: 1", [2])
    with pytest.raises(ConfigError, match="at least 3 different workers"):
        make_baseline("cascade", pool, workers="w0+w1")


@pytest.mark.parametrize(
    ("texts", "answer", "asked"),
    [
        ("4 4 4", "4", [3]),
        ("4 5 4 4", "4", [3, 1]),
        ("4 5 5 4 4", "4", [3, 1, 1]),
        ("4 5 6 5 7", "5", [3, 1, 1]),
    ],
)
async def test_a_vote_stops_when_no_other_answer_can_win(texts, answer: str, asked) -> None:
    pool = in_turn(*texts.split())
    assert await played(pool, "early_vote", worker="ann") == (f"Answer: {answer}", asked)
