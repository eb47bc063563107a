"""The pool of a trained Conductor: mapped by name, or refused with what differs."""

from __future__ import annotations

from dataclasses import replace

import pytest

import openconductor as oc
from openconductor.prompt import PromptOptions
from openconductor.providers.conductor_file import ConductorFile
from openconductor.testing import Scripted
from openconductor.types import TrainedWorker

TRAINED = (
    TrainedWorker(0, "small", "m-1"),
    TrainedWorker(1, "big", "m-2"),
    TrainedWorker(2, "tool"),
)
PLAN = oc.render_workflow(oc.Workflow((oc.Step(1, "Answer."),)))  # to "big"
EXPECTED = "Expected only workers of 'small', 'big', 'tool', with the same models. --force"


def planner(*trained: TrainedWorker) -> Scripted:
    return Scripted(PLAN, trained_with=trained)


def pool_of(text: str) -> oc.WorkerPool:
    """Make a pool of "name" or "name=model"."""
    workers: list[oc.Worker] = []
    for entry in text.split():
        name, _, model = entry.partition("=")
        workers.append(oc.Worker(Scripted(name, model=model), name=name))
    return oc.WorkerPool(workers)


@pytest.mark.parametrize(
    ("pool", "names"),
    [
        ("small=m-1 big=m-2 tool", {0: "small", 1: "big", 2: "tool"}),
        ("tool big small", {0: "small", 1: "big", 2: "tool"}),
        ("tool=m-9 big=m-2", {1: "big", 2: "tool"}),  # the tool's model was not known
    ],
)
def test_workers_get_the_numbers_that_the_conductor_was_trained_with(pool, names) -> None:
    conductor = oc.Conductor(planner(*TRAINED), pool=pool_of(pool))
    assert conductor.pool.names == names
    assert conductor.ask_sync("?").answer == "big"
    assert replace(conductor, max_rounds=2).pool is conductor.pool


@pytest.mark.parametrize(
    ("pool", "difference"),
    [
        ("small big other", "'other' is unknown to it"),
        ("small=m-1 big=m-3", "'big' was 'm-2' and is 'm-3'"),
        ("a b", "'a' is unknown to it; 'b' is unknown to it"),
    ],
)
def test_other_workers_are_refused_unless_they_are_forced(pool, difference) -> None:
    workers = pool_of(pool)
    with pytest.raises(oc.ConfigError) as raised:
        oc.Conductor(planner(*TRAINED), pool=workers)
    message = str(raised.value)
    assert f"was trained with other workers: {difference}. {EXPECTED}" in message
    forced = oc.Conductor(planner(*TRAINED), pool=workers, force=True)
    assert forced.pool is workers
    assert forced.ask_sync("?").answer == workers[1].name


def test_a_planner_among_the_workers_is_left_out() -> None:
    itself = oc.Worker(planner(*TRAINED), name="planner")
    workers = [itself, *(worker for _, worker in pool_of("big small"))]
    conductor = oc.Conductor(itself, pool=oc.WorkerPool(workers))
    assert conductor.pool.names == {0: "small", 1: "big"}


@pytest.mark.parametrize(
    ("cards", "workers", "known"), [(False, TRAINED, TRAINED), (True, TRAINED, ()), (False, (), ())]
)
def test_a_conductor_of_drawn_pools_or_with_cards_takes_any_pool(cards, workers, known) -> None:
    file = ConductorFile(PromptOptions(cards=cards), max_tokens=9, workers=workers)
    assert file.trained_with == known
    conductor = oc.Conductor(planner(*file.trained_with), pool=pool_of("small big"))
    assert conductor.pool.names == {0: "small", 1: "big"}
