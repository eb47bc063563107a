"""Baselines that ask more often: what they ask, of whom, what counts.

What becomes of a refusal.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from planted import attempts, planted_pool, provider_of
from workers import RIGHT, noisy, references

from openconductor.baselines import make_baseline
from openconductor.baselines.consensus import Consensus, MixtureOfAgents, answer_key
from openconductor.baselines.pools import DECLINED
from openconductor.baselines.single import LongContext, Reflection
from openconductor.errors import ConfigError, ContextTooLong, Refused, ServerFailed
from openconductor.gym.questions import draw_questions
from openconductor.gym.workers import gym_pool
from openconductor.gym.world import asks_to_compare
from openconductor.protocols import CallContext
from openconductor.reward import episode_reward
from openconductor.tasks.instructions import MERGE, REVISE, STANDS
from openconductor.testing import Scripted, pool_of
from openconductor.types import Call, Message, Sampling, Usage

QUESTIONS = [f"Is statement {number} true?" for number in range(20)]


def refusing(messages: Sequence[Message], rng: random.Random) -> str:
    raise Refused("no")


# ── consensus ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_sample_that_is_declined_has_no_vote() -> None:
    declined = ContextTooLong("too long")
    worker = Scripted([declined, "Answer: 3", declined, "Answer: 4", "Answer: 4"])
    episode = await Consensus(pool_of(worker), "w0", n=5).ask("Which?")
    assert episode.answer == "Answer: 4"
    results = episode.rounds[0].transcript.results
    outcomes = [result.calls[-1].outcome for result in results]
    assert outcomes.count("context_too_long") == 2


@pytest.mark.parametrize(
    "texts",
    [
        ["It is 0.5. Answer: 0.5", r"\boxed{\frac{1}{2}}", "**Final answer:** 1/2"],
        ["Answer: C", "(C)"],
    ],
)
def test_what_is_equal_has_one_key(texts: list[str]) -> None:
    assert len({answer_key(text) for text in texts}) == 1


def test_what_differs_has_another_key_and_no_answer_has_none() -> None:
    assert answer_key("I have no idea what this could be.") is None
    assert answer_key("Answer: 50%") != answer_key("Answer: 50")


# ── reflection ────────────────────────────────────────────────────────────────────────────────────
# ── reflection ────────────────────────────────────────────────────────────────────────────────────
async def test_a_revision_sees_all_attempts_and_is_asked_to_look_again() -> None:
    worker = Scripted(["one", "two", "three"])
    episode = await Reflection(pool_of(worker), "w0", n=2).ask("Which?")
    assert episode.answer == "three"
    assert [len(one.workflow) for one in episode.rounds] == [1, 1, 1]
    first, second, third = [list(call.messages) for call in worker.calls]
    assert first == [Message("user", "Which?")]
    assert second == [*first, Message("assistant", "one"), Message("user", REVISE)]
    assert third == [*second, Message("assistant", "two"), Message("user", REVISE)]


@pytest.mark.parametrize("words", [STANDS, "I found nothing.\n\n**My answer stands**"])
async def test_a_worker_that_says_so_lets_its_last_answer_stand(words: str) -> None:
    episode = await Reflection(pool_of(["one", "two", words]), "w0", n=5).ask("Which?")
    assert episode.answer == "two"
    assert len(episode.rounds) == 3


async def test_in_the_gym_the_same_value_stands() -> None:
    (question,) = draw_questions("test", 1, seed=0)
    episode = await Reflection(gym_pool(), "maven", n=5).ask(question.text)
    values = [one.answer for one in episode.rounds]
    assert values[-1] == values[-2]
    assert len(values) < 6


async def test_a_declined_revision_leaves_the_attempt_standing() -> None:
    episode = await Reflection(pool_of(["one", Refused("no")]), "w0", n=5).ask("Which?")
    assert episode.answer == "one"
    assert episode.error is None
    assert isinstance(episode.rounds[1].error, Refused)


async def test_a_broken_revision_masks() -> None:
    """Answered with fewer revisions than the others, it would be scored as another system."""
    broken = pool_of(["one", ServerFailed("no")], retries=0)
    episode = await Reflection(broken, "w0", n=5).ask("Which?")
    assert episode.answer is None
    assert isinstance(episode.error, ServerFailed)
    assert episode_reward(episode, None) is None


# ── mixture of agents ─────────────────────────────────────────────────────────────────────────────
# ── mixture of agents ─────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("told", [[], [Message("system", "Be brief.")]], ids=["untold", "told"])
async def test_each_layer_reads_the_proposals_of_the_one_before_in_its_system_prompt(told) -> None:
    pool = planted_pool(
        a=lambda turns, _: f"A{len(references(turns))}", b=lambda turns, _: f"B{len(turns)}"
    )
    question = [*told, Message("user", "Which?")]
    episode = await MixtureOfAgents(pool.subset([1, 0]), "b", layers=2).ask(question)
    workers = [[step.worker for step in one.workflow] for one in episode.rounds]
    assert workers == [[0, 1], [0, 1], [1]]
    first, second, merging = [messages for messages, _ in provider_of(pool, 1).calls]
    assert list(first) == question
    for messages in (second, merging):
        system, user = messages
        assert user == question[-1]
        assert system.role == "system"
        assert system.content.startswith("Be brief." if told else "")
        assert MERGE in system.content
    assert references(second) == ["A0", f"B{len(question)}"]
    assert references(merging) == ["A2", "B2"]
    assert episode.answer == "B2"


async def test_in_the_gym_proposals_are_turns_and_its_workers_compare_them() -> None:
    (question,) = draw_questions("test", 1, seed=0)
    episode = await MixtureOfAgents(gym_pool(), "referee").ask(question.text)
    proposed, (merged,) = [one.transcript.results for one in episode.rounds]
    texts = [result.completion.text for result in proposed]
    assert len(texts) == 8
    assert attempts(merged.messages) == [text for text in texts if text != DECLINED]
    assert asks_to_compare(merged.messages[-1].content)


async def test_an_aggregator_that_declines_ends_the_episode_and_a_proposer_does_not() -> None:
    pool = planted_pool(a=noisy(1.0), no=refusing)
    assert (await MixtureOfAgents(pool, "a").ask("Is it?")).answer == RIGHT
    assert references(provider_of(pool, 0).calls[-1][0]) == [RIGHT]
    episode = await MixtureOfAgents(pool, "no").ask("Is it?")
    assert episode.answer is None
    assert isinstance(episode.error, Refused)


def dear(messages: Sequence[Message], rng: random.Random) -> str:
    if rng.random() < 0.5:
        raise Refused("no", usage=Usage(input_tokens=1000, output_tokens=1))
    return RIGHT


@pytest.mark.parametrize(
    ("name", "options"),
    [("consensus", {"worker": "a"}), ("moa", {"aggregator": "a"}), ("smoothie-lite", {})],
)
async def test_a_refusal_that_costs_no_vote_more_stays_on_the_bill_once(name, options) -> None:
    system = make_baseline(name, planted_pool(a=dear, b=dear, c=dear), **options)
    refused = 0
    for question in QUESTIONS:
        episode = await system.ask(question)
        calls: list[Call] = []
        for one in episode.rounds:
            for result in one.transcript.results:
                calls += result.calls
        failed = sum(call.outcome == "refused" for call in calls)
        assert episode.usage.input_tokens == 1000 * failed + 10 * (len(calls) - failed)
        assert episode.usage.dollars == sum(call.usage.dollars for call in calls)
        refused += failed
    assert refused > len(QUESTIONS)


# ── more context ──────────────────────────────────────────────────────────────────────────────────
# ── more context ──────────────────────────────────────────────────────────────────────────────────
async def test_five_times_the_context_is_five_times_the_token_limit_and_nothing_else() -> None:
    worker = Scripted()
    pool = pool_of(worker, sampling=Sampling(0.2, 4096, 7))
    system = LongContext(pool, "w0")
    await system.ask("Is it?")
    assert worker.calls[0].sampling == Sampling(0.2, 5 * 4096, 7)
    assert pool[0].sampling.max_tokens == 4096
    reserved = system.pool[0].most([Message("user", "Is it?")], CallContext())
    assert reserved.output_tokens == 5 * 4096


async def test_a_worker_without_a_limit_has_nothing_to_multiply() -> None:
    worker = Scripted()
    with pytest.raises(ConfigError, match="has no max_tokens"):
        LongContext(pool_of(worker), "w0")
    await LongContext(pool_of(worker), "w0", times=2, max_tokens=10).ask("Is it?")
    assert worker.calls[0].sampling.max_tokens == 20
