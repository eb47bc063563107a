"""What each baseline must reach on a pool whose workers are known, computed from the baseline's definition.

A case is a planted pool, a system, and the accuracy that the definition predicts: from the workers'
chances alone, by formula or by going through all outcomes, never from what was measured. Half of
the cases are pools on which the system must *not* gain. As a program this prints the table of
docs/baselines.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import exp

import numpy as np
from formulas import jury, majority, neighbourly, noise_of, plurality, revised
from planted import Planted, Say, answers, calls_of, planted_pool, provider_of
from topics import draw_topics
from workers import (
    RIGHT,
    WRONG,
    Thinker,
    by_chance,
    by_count,
    closing,
    is_right,
    knowing,
    limited_pool,
    lying,
    merging,
    noisy,
    opening,
    revising,
    scattered,
    soloist,
    uneven,
)

from openconductor.baselines.collaboration import Explorer, Trial, trial_of
from openconductor.baselines.consensus import Consensus, MixtureOfAgents
from openconductor.baselines.observed import Observations
from openconductor.baselines.routers import MASRouter, RouterDC
from openconductor.baselines.single import LongContext, Reflection
from openconductor.baselines.smoothie import Smoothie
from openconductor.evaluation.statistics import wilson_interval
from openconductor.pool import WorkerPool
from openconductor.protocols import CallContext, Orchestrator
from openconductor.types import Message

SEEDS = (0, 1, 2)
ASKED = 200
"""Questions a seed."""
LEARNT = 120
LEVEL = 0.999
"""Of the intervals: some thirty cases are compared, and one false alarm among them should be unlikely (3 %)."""
Play = Callable[[int], Awaitable[tuple[list[bool], int]]]
"""By seed: what was right, and how many calls were made."""


@dataclass(frozen=True)
class Case:
    """A pool, a system over it, and what must come of it.

    Attributes:
        system: whose definition is held to account.
        pool: what the workers are.
        rule: how the prediction is made.
        predicted: the accuracy.
        single: the accuracy of the pool's best worker alone.
        calls: how many a question; None where the definition leaves it open.
        play: by seed, what was right, and how many calls were made.
    """

    system: str
    pool: str
    rule: str
    predicted: float
    single: float
    calls: int | None
    play: Play

    @property
    def gains(self) -> bool:
        """Whether the system should do better than the best worker alone."""
        return self.predicted > self.single + 1e-9


def questions_of(seed: int) -> list[str]:
    return [f"Is statement {seed}-{number} true?" for number in range(ASKED)]


def repeated(make: Callable[[], WorkerPool], system: Callable[[WorkerPool], Orchestrator]) -> Play:
    """How a case is played whose system learns nothing."""

    async def play(seed: int) -> tuple[list[bool], int]:
        pool = make()
        said = await answers(system(pool), questions_of(seed))
        return [answer == RIGHT for answer in said], calls_of(pool)

    return play


# ── how cases are played ──────────────────────────────────────────────────────────────────────────
def watched(pool: WorkerPool, questions: Sequence[str]) -> Observations:
    """What a pool's workers answer to questions, each alone; right or wrong is judged, but Smoothie does not look."""
    alone = [provider_of(pool, ordinal) for ordinal in pool.ordinals]
    table = tuple(
        tuple(worker.says([Message("user", question)]) for worker in alone)
        for question in questions
    )
    right = tuple(
        tuple(float(is_right(question, said)) for said in row)
        for question, row in zip(questions, table, strict=True)
    )
    return Observations(tuple(questions), tuple(worker.name for _, worker in pool), right, table)


def taught(
    make: Callable[[], WorkerPool], system: Callable[[WorkerPool, Observations, int], Orchestrator]
) -> Play:
    """How a case is played whose system learns from what single workers did on other questions."""

    async def play(seed: int) -> tuple[list[bool], int]:
        pool = make()
        before = [question for question, _ in draw_topics(LEARNT, seed=100 + seed)]
        now = [question for question, _ in draw_topics(ASKED, seed=200 + seed)]
        said = await answers(system(pool, watched(pool, before), seed), now)
        return [is_right(question, one) for question, one in zip(now, said, strict=True)], calls_of(
            pool
        )

    return play


def teamed(make: Callable[[], WorkerPool], tries: int = 8) -> Play:
    """How MASRouter is played: the explorer's trials on other questions, then its own."""

    async def play(seed: int) -> tuple[list[bool], int]:
        pool = make()
        before = [question for question, _ in draw_topics(LEARNT, seed=100 + seed)]
        now = [question for question, _ in draw_topics(ASKED, seed=200 + seed)]
        trials: list[Trial] = []
        for sample in range(tries):
            trials += await asyncio.gather(
                *(tried(Explorer(pool, seed=seed), question, sample) for question in before)
            )
        system = MASRouter(pool, trials=trials, seed=seed)
        calls = calls_of(pool)
        said = await answers(system, now)
        return [answer == RIGHT for answer in said], calls_of(pool) - calls

    return play


async def tried(explorer: Explorer, question: str, sample: int) -> Trial:
    episode = await explorer.ask(question, context=CallContext(sample=sample))
    workflow = episode.rounds[0].workflow
    assert workflow is not None
    trial = trial_of(
        question, question, workflow, explorer.pool, right=float(episode.answer == RIGHT)
    )
    assert trial is not None
    return trial


# ── cases ─────────────────────────────────────────────────────────────────────────────────────────
def consensus_cases() -> list[Case]:
    """Votes of one worker: independent ones, and votes that hang together by the question."""

    def case(pool: str, say: Say, n: int, rule: str, predicted: float, single: float) -> Case:
        play = repeated(lambda: planted_pool(a=say), lambda workers: Consensus(workers, "a", n=n))
        return Case(f"consensus, n = {n}", pool, rule, predicted, single, n, play)

    right = "right 0.6, each call anew"
    torn = (majority(0.9, 5) + majority(0.3, 5)) / 2
    return [
        *(
            case(right, noisy(0.6), n, "binomial majority", majority(0.6, n), 0.6)
            for n in (1, 5, 9)
        ),
        case(
            "right 0.4, each call anew", noisy(0.4), 5, "binomial majority", majority(0.4, 5), 0.4
        ),
        case(
            "right 0.4, else one of three",
            scattered(0.4, 3),
            5,
            "plurality",
            plurality((0.4, 0.2, 0.2, 0.2), 5),
            0.4,
        ),
        case("0.9 on half, 0.3 on half", uneven(0.9, 0.3), 5, "mean of two majorities", torn, 0.6),
    ]


def reflection_cases() -> list[Case]:
    """Revisions as a chain of two states, right and wrong."""

    def case(
        pool: str, first: float, mends: float, breaks: float, n: int, content: Sequence[str] = ()
    ) -> Case:
        play = repeated(
            lambda: planted_pool(a=revising(first, mends, breaks, content)),
            lambda workers: Reflection(workers, "a", n=n),
        )
        predicted = revised(
            first, 0 if WRONG in content else mends, 0 if RIGHT in content else breaks, n
        )
        calls = None if content else n + 1
        return Case(f"reflection, n = {n}", pool, "two-state chain", predicted, first, calls, play)

    return [
        case("right 0.3, mends 0.3, breaks 0", 0.3, 0.3, 0.0, 1),
        case("right 0.3, mends 0.3, breaks 0", 0.3, 0.3, 0.0, 5),
        case("right 0.6, mends 0.3, breaks 0.2", 0.6, 0.3, 0.2, 5),
        case("right 0.6, mends 0, breaks 0.1", 0.6, 0.0, 0.1, 5),
        case(
            "right 0.6, mends 0.3, breaks 0.2, lets what is right stand", 0.6, 0.3, 0.2, 5, [RIGHT]
        ),
        case(
            "right 0.6, mends 0.3, breaks 0.2, lets what is wrong stand", 0.6, 0.3, 0.2, 5, [WRONG]
        ),
    ]


def mixture_cases() -> list[Case]:
    """Proposals that are counted, or drawn from."""
    shares = (0.75, 0.7, 0.7, 0.65, 0.6)

    def case(
        pool: str, workers: Sequence[Say], layers: int, rule: str, predicted: float, single: float
    ) -> Case:
        def make() -> WorkerPool:
            return planted_pool(**{f"w{index}": say for index, say in enumerate(workers)})

        play = repeated(make, lambda made: MixtureOfAgents(made, "w0", layers=layers))
        calls = layers * len(workers) + 1
        return Case(f"moa, layers = {layers}", pool, rule, predicted, single, calls, play)

    counting = [merging(noisy(share), by_count) for share in shares]
    guessing = [merging(noisy(share), by_chance) for share in shares]
    text = "right 0.75, 0.7, 0.7, 0.65, 0.6"
    mean = sum(shares) / len(shares)
    return [
        case(
            f"{text}; merged by count",
            counting,
            1,
            "Poisson-binomial majority",
            jury(shares),
            max(shares),
        ),
        case(
            f"{text}; merged by count",
            counting,
            2,
            "the same: layer 2 agrees",
            jury(shares),
            max(shares),
        ),
        case(f"{text}; merged by chance", guessing, 1, "mean of the workers", mean, max(shares)),
    ]


def context_cases() -> list[Case]:
    """A worker that needs tokens, and one that does not."""

    def system(pool: WorkerPool) -> Orchestrator:
        return LongContext(pool, "a")

    mean, limit = 1000.0, 400
    need = repeated(lambda: limited_pool(Thinker(mean), limit), system)
    none = repeated(lambda: limited_pool(Planted("a", noisy(0.6)), limit), system)
    by_limit = 1 - exp(-5 * limit / mean)
    return [
        Case("context, times = 5", "needs 1,000 tokens on average, limit 400", "1 - exp(-5 limit / mean)", by_limit,
             1 - exp(-limit / mean), 1, need),
        Case("context, times = 5", "right 0.6 whatever the limit", "the worker alone", 0.6, 0.6, 1, none),
    ]  # fmt: skip


def smoothie_cases() -> list[Case]:
    """Agreement that tells who is good, by topic or over all; agreement that tells nothing; agreement in error."""

    def pool_of(*workers: Say) -> Callable[[], WorkerPool]:
        return lambda: planted_pool(**{f"w{index}": say for index, say in enumerate(workers)})

    def independent(pool: WorkerPool, seen: Observations, seed: int) -> Smoothie:
        return Smoothie(pool, mode="independent", observations=seen)

    def dependent(pool: WorkerPool, seen: Observations, seed: int) -> Smoothie:
        return Smoothie(pool, mode="dependent", observations=seen)

    shares = (0.4, 0.85, 0.65, 0.1)
    chosen = shares[int(noise_of(shares).argmin())]
    topics = ((0.95, 0.3, 0.6, 0.4), (0.3, 0.95, 0.6, 0.4))
    experts = [knowing(*both) for both in zip(*topics, strict=True)]
    # Own answers alone: agreement of the two that are ever right decides; else the first answer is
    # taken.
    own = repeated_topics(pool_of(knowing(0.9), knowing(0.9), knowing(0.0)), Smoothie)
    accents = [
        knowing(share, accent=accent) for share, accent in zip((0.3, 0.9, 0.6), "abc", strict=True)
    ]
    best = max(np.mean(topics, axis=0))
    return [
        Case("smoothie-lite, independent", "right 0.4, 0.85, 0.65, 0.1", "who is least noisy by the formula", chosen,
             max(shares), 4, taught(pool_of(*map(knowing, shares)), independent)),
        Case("smoothie-lite, independent", "0.3, 0.9, 0.6; no two ever say the same", "the first: nobody agrees", 0.3,
             0.9, 3, taught(pool_of(*accents), independent)),
        Case("smoothie-lite, independent", "right 0.9; three that copy an error", "one of the three", 0.0, 0.9, 4,
             taught(pool_of(knowing(0.9), lying, lying, lying), independent)),
        Case("smoothie-lite, dependent", "experts 0.95 / 0.3 of two topics, 0.6, 0.4", "drawn from the definition",
             neighbourly(topics, 20), best, 4, taught(pool_of(*experts), dependent)),
        Case("smoothie-lite, dependent", "0.9, 0.9, 0; nothing observed", "0.9² + 0.9 · 0.1", 0.9**2 + 0.9 * 0.1, 0.9,
             3, own),
    ]  # fmt: skip


def repeated_topics(
    make: Callable[[], WorkerPool], system: Callable[[WorkerPool], Orchestrator]
) -> Play:
    """How a case over topics is played whose system learns nothing."""
    return taught(make, lambda pool, seen, seed: system(pool))


def router_cases() -> list[Case]:
    """Questions that say who knows, and questions that say nothing."""

    def routed(pool: WorkerPool, seen: Observations, seed: int) -> RouterDC:
        return RouterDC(pool, observations=seen, seed=seed)

    def experts() -> WorkerPool:
        return planted_pool(sky=knowing(0.9, 0.2), words=knowing(0.2, 0.9), fair=knowing(0.5))

    def unequal() -> WorkerPool:
        return planted_pool(fair=knowing(0.5), best=knowing(0.8), poor=knowing(0.3))

    def team() -> WorkerPool:
        return planted_pool(solo=soloist(0.9), starter=opening, finisher=closing(0.8))

    def loners() -> WorkerPool:
        return planted_pool(fair=noisy(0.4), best=noisy(0.7), poor=noisy(0.2))

    return [
        Case("routerdc-lite", "experts 0.9 / 0.2 of two topics, 0.5", "mean of the experts", 0.9, 0.55, 1,
             taught(experts, routed)),
        Case("routerdc-lite", "0.5, 0.8, 0.3 whatever is asked", "the best worker", 0.8, 0.8, 1,
             taught(unequal, routed)),
        Case("masrouter-lite", "topic 1: one alone, 0.9; topic 2: a chain of two, 0.8", "mean of the two", 0.85, 0.45,
             None, teamed(team)),
        Case("masrouter-lite", "who speaks last is right 0.4, 0.7, 0.2", "the best in the last seat", 0.7, 0.7,
             None, teamed(loners, tries=4)),
    ]  # fmt: skip


def cases() -> list[Case]:
    """All of them, in the order of the table."""
    return [
        *consensus_cases(),
        *reflection_cases(),
        *mixture_cases(),
        *context_cases(),
        *smoothie_cases(),
        *router_cases(),
    ]


def report() -> None:
    """Play every case over every seed, and print the table."""

    async def played(case: Case) -> tuple[int, int, int]:
        outcomes = [await case.play(seed) for seed in SEEDS]
        right = [one for rights, _ in outcomes for one in rights]
        return sum(right), len(right), sum(calls for _, calls in outcomes)

    print(
        "| system | workers | prediction | predicted | measured | 99.9 % interval | best worker | calls |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for case in cases():
        right, count, calls = asyncio.run(played(case))
        low, high = wilson_interval(right, count, confidence=LEVEL)
        print(
            f"| `{case.system}` | {case.pool} | {case.rule} | {case.predicted:.3f} | {right / count:.3f} "
            f"| {low:.3f} to {high:.3f} | {case.single:.2f} | {calls / count:.2g} |"
        )


if __name__ == "__main__":
    report()
