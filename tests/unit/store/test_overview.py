"""Lists of episodes: filters, orders and pages of a journal, whatever kind of episode is in it."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from journaled import PLAN, ask, one_call, pool_of, says, talker
from tests.places import Place

from openconductor.errors import Refused
from openconductor.events import Answered, Asked, RoundEnded, StepEnded
from openconductor.store import EpisodeFilter, EpisodeOrder
from openconductor.store.overview import EXCERPT, line_of
from openconductor.types import (
    Completion,
    Episode,
    Message,
    Round,
    Step,
    StepResult,
    Transcript,
    Usage,
    Workflow,
)


async def test_the_line_of_an_episode_is_the_same_from_the_store_and_from_the_episode(
    place: Place,
) -> None:
    with place.open() as journal:
        asked = await ask(journal)
        stored = journal.episode(asked.id)
        assert stored is not None
        assert journal.lines() == [line_of(stored)]


async def test_an_episode_that_failed_is_found_by_its_error(place: Place) -> None:
    with place.open() as journal:
        broken = pool_of(talker(Refused("no", worker="w0")), talker(says("4")))
        failed = await ask(journal, pool=broken)
        await ask(journal)
        (line,) = journal.lines(EpisodeFilter(error="Refused", outcome="failed"))
        assert (line.id, line.answer, line.error) == (failed.id, None, "Refused")


def test_an_unfinished_episode_shows_what_its_ended_calls_used(place: Place) -> None:
    with place.open() as journal:
        journal(Asked("e1", 0, 0.0, "2 + 2?"))
        journal(one_call(episode="e1"))
        journal.flush()
        (line,) = journal.lines()
        assert (line.outcome, line.seconds, line.usage) == (
            "unfinished",
            None,
            Usage(output_tokens=7),
        )
        assert line.workers == ("w0",)


def test_a_call_without_a_plan_is_one_step_of_one_round(place: Place) -> None:
    step = Step(0, "Answer.")
    result = StepResult(step, Completion("4"), worker=0, started=0.0, ended=1.0)
    played = Round(None, Workflow((step,)), Transcript(Workflow((step,)), (result,)))
    episode = Episode("2 + 2?", (played,), "4", None, Usage(), 1.0, "e1")
    events = (
        Asked("e1", 0, 0.0, "2 + 2?"),
        StepEnded("e1", 0, 1.0, 0, result),
        RoundEnded("e1", 0, 1.0, played),
        Answered("e1", 0, 1.0, episode),
    )
    with place.open() as journal:
        journal.put_episode(events)
        journal.flush()
        (line,) = journal.lines()
        assert (line.rounds, line.steps) == (1, 1)


async def test_long_texts_are_cut_and_of_a_chat_the_last_turn_is_shown(place: Place) -> None:
    turns = (Message("user", "first"), Message("assistant", "yes?"), Message("user", "?" * 9999))
    with place.open() as journal:
        journal(Asked("e1", 0, 0.0, turns))
        journal.flush()
        (line,) = journal.lines()
        assert line.question == "?" * EXCERPT
        assert journal.lines(EpisodeFilter(text="??")) == [line]
        assert journal.lines(EpisodeFilter(text="%")) == []


async def test_without_content_a_line_has_numbers_and_names_only(place: Place) -> None:
    with place.open(content="none") as journal:
        asked = await ask(journal)
        (line,) = journal.lines()
        assert (line.question, line.answer) == (None, None)
        assert (line.usage, line.workers) == (asked.usage, ("w0", "w1"))


@pytest.mark.parametrize("order", ["dollars", "tokens", "seconds"])
def test_an_order_sorts_all_episodes_before_a_page_is_cut(
    place: Place, order: EpisodeOrder
) -> None:
    with place.open() as journal:
        for number in (1, 9, 10, 2):
            usage = Usage(output_tokens=number, dollars=Decimal(number) / 1000)
            episode = Episode("?", (), "!", None, usage, float(number), f"e{number}")
            journal(Asked(episode.id, 0, 0.0, "?"))
            journal(Answered(episode.id, 0, 1.0, episode))
        journal.flush()
        first = journal.lines(EpisodeFilter(order=order), limit=2)
        second = journal.lines(EpisodeFilter(order=order), offset=2, limit=2)
        assert [line.id for line in (*first, *second)] == ["e10", "e9", "e2", "e1"]


async def test_episodes_of_an_evaluation_are_found_by_task(place: Place) -> None:
    with place.open() as journal:
        asked = await ask(journal)
        await ask(journal)
        cell = json.dumps(["conductor", "gym", "gym-1", 0])
        journal.put_record(cell, {"task": "gym", "episode": asked.id})
        journal.flush()
        assert [line.id for line in journal.lines(EpisodeFilter(task="gym"))] == [asked.id]


async def test_only_the_last_record_of_a_request_says_whose_it_is(place: Place) -> None:
    with place.open() as journal:
        asked = await ask(journal, plan=PLAN)
        for key in ("ann", "kim"):
            journal.put_record(f"serve/{asked.id}", {"key": key, "model": "m"}, texts=False)
        journal.flush()
        assert journal.lines(EpisodeFilter(key="ann")) == []
        (line,) = journal.lines(EpisodeFilter(key="kim"))
        assert (line.key, line.model) == ("kim", "m")


async def test_a_worker_has_a_line_of_its_latest_calls(place: Place) -> None:
    with place.open() as journal:
        first = await ask(journal)
        journal.flush()
        lines = journal.workers()
        stored = journal.episode(first.id)
        assert stored is not None
        assert sum(line.calls for line in lines) == len(stored.calls)
        assert sum((line.usage for line in lines), Usage()) == first.usage
        assert all(line.failed == 0 and line.median_s is not None for line in lines)
        assert [line.calls for line in journal.workers(latest=1)] == [1]
