"""The plans of a training, read back from its journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from openconductor.conductor import Conductor
from openconductor.errors import JournalError
from openconductor.evaluation.journaled import journaled_plans
from openconductor.gym.workers import gym_pool
from openconductor.journal import Journal
from openconductor.prompt import render_workflow
from openconductor.types import Message, Step, Workflow

ASKED = "Take 4 17 9, sort the list, then double every number."
CHAIN = Workflow((Step(3, 'sort "the" list'), Step(1, "make each twice as big", (0,)), Step(0, "check", "all")))


async def written(path: Path, texts: list[str]) -> None:
    """A journal of one episode a text, in which a planner wrote it."""
    with Journal(path) as journal:
        for text in texts:

            def plan(messages: list[Message], text: str = text) -> str:
                return text

            await Conductor(plan, pool=gym_pool()).ask(ASKED, on_event=journal)
        await journal.wait_durable()


async def test_every_valid_workflow_comes_back_as_it_was_planned_with_its_place(tmp_path: Path) -> None:
    texts = [render_workflow(CHAIN) if number % 2 == 0 else "no workflow" for number in range(20)]
    await written(tmp_path / "journal.sqlite", texts)
    plans = list(journaled_plans(tmp_path / "journal.sqlite"))
    assert [plan.workflow for plan in plans] == [CHAIN] * 10
    assert [plan.place for plan in plans] == list(range(10))
    assert {plan.correct for plan in plans} == {None}
    halves = [plan.place for plan in journaled_plans(tmp_path / "journal.sqlite", places=2)]
    assert halves == [0] * 5 + [1] * 5


async def test_a_journal_without_episodes_has_no_plans(tmp_path: Path) -> None:
    await written(tmp_path / "journal.sqlite", [])
    assert list(journaled_plans(tmp_path / "journal.sqlite")) == []


def test_what_is_no_journal_says_so(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").write_bytes(b"no database at all, but a text of some length" * 20)
    with pytest.raises(JournalError, match="no SQLite file"):
        list(journaled_plans(tmp_path / "journal.sqlite"))
