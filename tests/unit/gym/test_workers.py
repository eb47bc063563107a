"""The gym's workers: blind to all but the text they are sent, and drawn by key."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from openconductor.calls.cards import read_card
from openconductor.episode import execute
from openconductor.errors import ConfigError, Refused
from openconductor.gym.questions import GymQuestion, read_question
from openconductor.gym.workers import (
    LOST,
    PROFILES,
    REFUSES,
    Profile,
    SimulatedWorker,
    View,
    gym_pool,
    outcomes,
    profiles_of,
    world_of,
)
from openconductor.gym.world import COMPARE, OPERATIONS, read_value
from openconductor.protocols import CallContext
from openconductor.types import Message, Sampling, Step, Workflow

BY_NAME = {profile.name: profile for profile in PROFILES}


def question_of(text: str) -> GymQuestion:
    question = read_question(text)
    assert question is not None
    return question


RIGHT, WRONG = ("4", "9", "17"), ("4", "9", "18")
SORT = question_of("Take 4 17 9, sort the list.")


def test_another_world_has_the_same_workers_in_other_places_who_like_other_wordings() -> None:
    assert profiles_of(0) == PROFILES
    moved = liked = 0
    for world in range(1, 9):
        profiles = profiles_of(world)
        assert profiles == profiles_of(world)
        assert {profile.name for profile in profiles} == set(BY_NAME)
        for profile, other in zip(profiles, PROFILES, strict=True):
            usual = BY_NAME[profile.name]
            assert replace(profile, likes=usual.likes) == usual
            assert (profile.likes is None) == (usual.likes is None)
            moved += profile.name != other.name
            liked += profile.likes != usual.likes
        names = [worker.name for _, worker in gym_pool(world=world)]
        assert names == [profile.name for profile in profiles]
    assert moved > 40
    assert liked > 8


def test_drawn_workers_are_good_at_what_their_cards_say() -> None:
    shapes = Counter[str]()
    for number in range(60):
        world = f"somewhere/{number}"
        drawn = profiles_of(world)
        assert drawn == profiles_of(world) != profiles_of(f"elsewhere/{number}")
        shapes.update(profile.description for profile in drawn)
        cards = gym_pool(world=world).cards
        assert cards == gym_pool(world=world).cards
        for profile, card in zip(drawn, cards.values(), strict=True):
            for category, share in read_card(card).items():
                skill, _, wording = category.partition(" ")
                if not wording:
                    assert share > 0.5 or not profile.referee
                    continue
                operation = next(one for one in OPERATIONS.values() if one.skill == skill)
                assert share == pytest.approx(profile.success(operation, wording), abs=0.3)
    assert set(shapes) == {"one", "two", "all", "referee"}
    assert gym_pool(0).cards != gym_pool(1).cards, "each seed measures anew"


def identities(*worlds: int | str) -> set[str]:
    pools = [gym_pool(world=world) for world in worlds]
    return {worker.provider.identity for pool in pools for _, worker in pool}


def test_a_journal_tells_worlds_apart() -> None:
    for world in range(3):
        assert "gym jack 0" in identities(world), "who likes no wording is the same in each"
    assert len(identities(0, 1, 2)) > 8
    assert len(identities("a", "b")) == 16


def test_a_pool_is_known_by_its_name() -> None:
    known = {"gym": 0, "gym:0": 0, "gym:12": 12, "pool.toml": None, "gymnasium.toml": None}
    assert {name: world_of(name) for name in known} == known
    for name in ("gym:", "gym:x", "gym:-1", "gym:1.5"):
        with pytest.raises(ConfigError, match=r"pool 'gym:.*expected a whole number"):
            world_of(name)


def chances(
    profile: Profile, instruction: str, *seen: object, question: GymQuestion = SORT
) -> dict[object, float]:
    found: dict[object, float] = {}
    for chance, result, _ in outcomes(profile, View(question, instruction, tuple(seen), 3)):  # type: ignore[arg-type]
        found[result] = found.get(result, 0.0) + chance
    return found


async def answer(
    profile: Profile, *turns: Message, sample: int = 0, seed: int = 0, step: int = 0
) -> str:
    """Return what a worker answers, or that it refused."""
    call = CallContext(step=step, sample=sample)
    try:
        completion = await SimulatedWorker(profile, seed).complete(turns, Sampling(), call=call)
    except Refused:
        return "(refused)"
    return completion.text


CHANCES = {  # a worker, its instruction, the values it sees, and the chance of a result
    "liked": ("lister", "sort the list", (), "4 9 17", 0.97),
    "the other wording": ("lister", "put it in order", (), "4 9 17", 0.485),
    "two at once": ("jack", "sort the list, then add one to each", (), "5 10 18", 0.0735),
    "the last one seen": ("counter", "add one to each", ("1 2", "5 6"), "6 7", 0.97),
    "an apology seen": ("counter", "add one to each", ("1 2", ""), "", 1.0),
    "nothing known": ("maven", "solve the question", (), "", 1.0),
    "none": ("referee", COMPARE[0], ("", ""), "", 1.0),
}


@pytest.mark.parametrize("name", CHANCES)
def test_the_chance_of_a_result(name: str) -> None:
    worker, instruction, seen, result, chance = CHANCES[name]
    values = [read_value(text) for text in seen]
    assert chances(BY_NAME[worker], instruction, *values)[read_value(result)] == pytest.approx(
        chance
    )


def test_only_a_referee_recognises_the_right_one_of_two_answers() -> None:
    wrong, right = WRONG, RIGHT
    assert chances(BY_NAME["referee"], COMPARE[0], wrong, right)[right] > 0.75
    others = [profile for profile in PROFILES if not profile.referee]
    assert all(chances(profile, COMPARE[0], wrong, right)[right] < 0.5 for profile in others)
    assert all(right not in chances(profile, COMPARE[0], wrong) for profile in others)


async def test_a_worker_that_is_sent_only_the_question_does_what_it_asks() -> None:
    turn = Message("user", "Take 4 17 9, sort the list.")
    answers = [await answer(BY_NAME["lister"], turn, sample=sample) for sample in range(400)]
    assert answers.count("4 9 17") / 400 == pytest.approx(0.97 * (1 - REFUSES), abs=0.04)
    assert await answer(BY_NAME["jack"], Message("user", "What is 6 * 7?")) == LOST
    assert answers.count("(refused)") / 400 == pytest.approx(REFUSES, abs=0.03)


async def test_the_same_call_draws_the_same_answer_and_every_part_of_its_key_another_one() -> None:
    question = Message("user", SORT.text + "\n\nsort the list")

    async def answers(**key: int) -> list[str]:
        jack = BY_NAME["jack"]
        return [await answer(jack, question, sample=sample, **key) for sample in range(50)]

    drawn = await answers()
    assert drawn == await answers()
    assert drawn != await answers(seed=1)
    assert drawn != await answers(step=1)
    assert len(set(drawn)) > 2


async def test_a_step_is_billed_by_the_words_that_it_read_and_wrote() -> None:
    transcript = await execute(Workflow((Step(3, "sort the list"),)), gym_pool(), SORT.text)
    completion = transcript.results[0].completion
    assert completion.usage.input_tokens == len((SORT.text + " sort the list").split())
    assert completion.usage.output_tokens == len(completion.text.split())
    assert completion.usage.dollars == PROFILES[3].price.dollars(replace(completion.usage))
    assert completion.usage.unpriced_calls == 0
