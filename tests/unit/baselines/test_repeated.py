"""Baselines that ask more often: what they ask, of whom, what counts.

What becomes of a refusal.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from planted import attempts, calls_of, planted_pool, provider_of
from workers import RIGHT, noisy, references

from openconductor.baselines import make_baseline
from openconductor.baselines.consensus import Consensus, MixtureOfAgents, answer_key
from openconductor.baselines.pools import DECLINED
from openconductor.baselines.single import LongContext, Reflection, SingleWorker
from openconductor.errors import ConfigError, ContextTooLong, Refused, ServerFailed
from openconductor.gym.questions import draw_questions
from openconductor.gym.workers import gym_pool
from openconductor.gym.world import asks_to_compare
from openconductor.pool import Worker, WorkerPool
from openconductor.protocols import CallContext
from openconductor.reward import episode_reward
from openconductor.store import Journal
from openconductor.tasks.instructions import MERGE, REVISE, STANDS
from openconductor.types import Message, Sampling, Usage

QUESTIONS = [f"Is statement {number} true?" for number in range(20)]


def refusing(messages: Sequence[Message], rng: random.Random) -> str:
    raise Refused("no")


# ── consensus ─────────────────────────────────────────────────────────────────────────────────────
async def test_the_first_sample_is_the_call_of_the_worker_alone(
    tmp_path,
) -> None:
    pool = planted_pool(noisy=noisy(0.5))
    with Journal(tmp_path / "journal.sqlite") as journal:
        for question in QUESTIONS[:20]:
            await SingleWorker(pool, 0).ask(question, on_event=journal)
        before = calls_of(pool)
        for question in QUESTIONS[:20]:
            await Consensus(pool.replaying(journal), 0, n=5).ask(question, on_event=journal)
        assert calls_of(pool) - before == 4 * 20


async def test_a_sample_that_is_declined_has_no_vote() -> None:
    said = iter([None, "Answer: 3", None, "Answer: 4", "Answer: 4"])

    def now_and_then(messages: Sequence[Message], rng: random.Random) -> str:
        answer = next(said)
        if answer is None:
            raise ContextTooLong("too long")
        return answer

    pool = planted_pool(a=now_and_then)
    episode = await Consensus(pool, "a", n=5).ask("Which?")
    assert episode.answer == "Answer: 4"
    transcript = episode.rounds[0].transcript
    assert [result.calls[-1].outcome for result in transcript.results].count(
        "context_too_long"
    ) == 2


def test_what_is_equal_has_one_key() -> None:
    for same in (
        ["It is 0.5. Answer: 0.5", r"\boxed{\frac{1}{2}}", "**Final answer:** 1/2"],
        ["Answer: C", "(C)"],
    ):
        assert len({answer_key(text) for text in same}) == 1
    assert answer_key("I have no idea what this could be.") is None
    assert answer_key("Answer: 50%") != answer_key("Answer: 50")


# ── reflection ────────────────────────────────────────────────────────────────────────────────────
async def test_a_revision_sees_all_attempts_and_is_asked_to_look_again() -> None:
    said = iter(["one", "two", "three"])
    pool = planted_pool(a=lambda *_: next(said))
    episode = await Reflection(pool, "a", n=2).ask("Which?")
    assert episode.answer == "three"
    assert [len(one.workflow or ()) for one in episode.rounds] == [1, 1, 1]
    sent = [
        [(turn.role, turn.content) for turn in messages]
        for messages, _ in provider_of(pool, 0).calls
    ]
    assert sent[0] == [("user", "Which?")]
    assert sent[1] == [("user", "Which?"), ("assistant", "one"), ("user", REVISE)]
    assert sent[2] == [*sent[1], ("assistant", "two"), ("user", REVISE)]


@pytest.mark.parametrize("words", [STANDS, "I found nothing.\n\n**My answer stands**"])
async def test_a_worker_that_says_so_lets_its_last_answer_stand(words: str) -> None:
    said = iter(["one", "two", words])
    episode = await Reflection(planted_pool(a=lambda *_: next(said)), "a", n=5).ask("Which?")
    assert episode.answer == "two"
    assert len(episode.rounds) == 3


@pytest.mark.parametrize("failure", [Refused("no"), ServerFailed("no")], ids=["refused", "broken"])
async def test_a_declined_revision_leaves_the_attempt_standing_and_a_broken_one_masks(
    failure: Refused | ServerFailed,
) -> None:
    def once(messages: Sequence[Message], rng: random.Random) -> str:
        if attempts(messages):
            raise failure
        return "one"

    episode = await Reflection(planted_pool(a=once), "a", n=5).ask("Which?")
    assert [type(one.error) for one in episode.rounds] == [type(None), type(failure)]
    if isinstance(failure, Refused):
        assert episode.answer == "one"
        assert episode.error is None
    else:  # answered with fewer revisions than the others, it would be scored as another system
        assert episode.answer is None
        assert type(episode.error) is ServerFailed
        assert episode_reward(episode, None) is None


# ── mixture of agents ─────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("told", ["", "Be brief."])
async def test_each_layer_reads_the_proposals_of_the_one_before_in_its_system_prompt(
    told,
) -> None:
    pool = planted_pool(
        a=lambda turns, _: f"A{len(references(turns))}", b=lambda turns, _: f"B{len(turns)}"
    )
    question = [*([Message("system", told)] if told else []), Message("user", "Which?")]
    episode = await MixtureOfAgents(pool.subset([1, 0]), "b", layers=2).ask(question)
    assert [[step.worker for step in one.workflow or ()] for one in episode.rounds] == [
        [0, 1],
        [0, 1],
        [1],
    ]
    (first, _), (second, _), (merging, _) = provider_of(pool, 1).calls
    assert list(first) == question
    assert [turn.role for turn in second] == [turn.role for turn in merging] == ["system", "user"]
    assert second[-1] == merging[-1] == question[-1]
    assert second[0].content.startswith(told)
    assert MERGE in second[0].content
    assert references(second) == ["A0", f"B{len(question)}"]
    assert references(merging) == ["A2", "B2"]
    assert episode.answer == "B2"


async def test_in_the_gym_proposals_are_turns_and_its_workers_compare_them() -> None:
    (question,) = draw_questions("test", 1, seed=0)
    episode = await MixtureOfAgents(gym_pool(), "referee").ask(question.text)
    proposed, merged = (one.transcript.results for one in episode.rounds if one.transcript)
    said = [result.completion.text for result in proposed if result.completion]
    assert attempts(merged[0].messages) == [text for text in said if text != DECLINED]
    assert len(said) == 8
    assert asks_to_compare(merged[0].messages[-1].content)


async def test_an_aggregator_that_declines_ends_the_episode_and_a_proposer_does_not() -> None:
    pool = planted_pool(a=noisy(1.0), no=refusing)
    assert (await MixtureOfAgents(pool, "a").ask("Is it?")).answer == RIGHT
    assert references(provider_of(pool, 0).calls[-1][0]) == [RIGHT]
    episode = await MixtureOfAgents(pool, "no").ask("Is it?")
    assert episode.answer is None
    assert isinstance(episode.error, Refused)


@pytest.mark.parametrize("system", ["consensus", "moa", "smoothie-lite"])
async def test_a_refusal_that_costs_no_vote_more_stays_on_the_bill_once(system: str) -> None:
    def dear(messages: Sequence[Message], rng: random.Random) -> str:
        if rng.random() < 0.5:
            raise Refused("no", usage=Usage(input_tokens=1000, output_tokens=1))
        return RIGHT

    pool = planted_pool(a=dear, b=dear, c=dear)
    options: dict[str, object] = {
        "consensus": {"worker": "a"},
        "moa": {"aggregator": "a"},
        "smoothie-lite": {},
    }[system]
    made = make_baseline(system, pool, **options)  # type: ignore[arg-type]
    refused = 0
    for question in QUESTIONS:
        episode = await made.ask(question)
        results = [
            result for one in episode.rounds if one.transcript for result in one.transcript.results
        ]
        calls = [call for result in results for call in result.calls]
        failed = sum(call.outcome == "refused" for call in calls)
        assert episode.usage.input_tokens == 1000 * failed + 10 * (len(calls) - failed)
        assert episode.usage.dollars == sum(call.usage.dollars for call in calls)
        refused += failed
    assert refused > len(QUESTIONS)


# ── more context ──────────────────────────────────────────────────────────────────────────────────
async def test_five_times_the_context_is_five_times_the_token_limit_and_nothing_else() -> None:
    pool = planted_pool(a=noisy(1.0), b=noisy(1.0))
    limited = WorkerPool(
        [Worker(one.provider, name=one.name, sampling=Sampling(0.2, 4096, 7)) for _, one in pool]
    )
    system = LongContext(limited, "b")
    await system.ask("Is it?")
    (_, sampling), *_ = provider_of(limited, 1).calls
    assert sampling == Sampling(0.2, 5 * 4096, 7)
    assert limited[1].sampling.max_tokens == 4096
    assert (
        system.pool[1].most([Message("user", "Is it?")], CallContext()).output_tokens == 5 * 4096
    )  # what a budget reserves


async def test_a_worker_without_a_limit_has_nothing_to_multiply() -> None:
    pool = planted_pool(a=noisy(1.0))
    with pytest.raises(ConfigError, match="has no max_tokens"):
        LongContext(pool, "a")
    await LongContext(pool, "a", times=2, max_tokens=10).ask("Is it?")
    assert provider_of(pool, 0).calls[0][1].max_tokens == 20
