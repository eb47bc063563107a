"""Accuracies that each baseline must reach on a pool whose workers are known.

Computed from the baseline's definition.

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

from formulas import jury, majority, noise_of, revised
from planted import Planted, Say, answers, calls_of, planted_pool, provider_of
from topics import draw_topics
from workers import (
    RIGHT,
    WRONG,
    Thinker,
    by_chance,
    by_count,
    closing,
    knowing,
    limited_pool,
    lying,
    merging,
    noisy,
    opening,
    revising,
    soloist,
    truth,
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
"""Of the intervals: some thirty cases are compared.

One false alarm among them should be unlikely (3 %).
"""
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


def questions_of(seed: int) -> list[str]:
    return [f"Is statement {seed}-{number} true?" for number in range(ASKED)]


def repeated(make: Callable[[], WorkerPool], system: Callable[[WorkerPool], Orchestrator]) -> Play:
    """Return how a case is played whose system learns nothing."""

    async def play(seed: int) -> tuple[list[bool], int]:
        pool = make()
        said = await answers(system(pool), questions_of(seed))
        return [answer == RIGHT for answer in said], calls_of(pool)

    return play


# ── how cases are played ──────────────────────────────────────────────────────────────────────────
# ── how cases are played ──────────────────────────────────────────────────────────────────────────
def watched(pool: WorkerPool, questions: Sequence[str]) -> Observations:
    """Return what a pool's workers answer to questions, each alone, and what of it is right.

    Smoothie does not look at the latter.
    """
    alone = [provider_of(pool, ordinal) for ordinal in pool.ordinals]
    texts: list[tuple[str, ...]] = []
    right: list[tuple[float, ...]] = []
    for question in questions:
        row = tuple(worker.says([Message("user", question)]) for worker in alone)
        texts.append(row)
        right.append(tuple(float(text == truth(question)) for text in row))
    names = tuple(worker.name for _, worker in pool)
    return Observations(tuple(questions), names, tuple(right), tuple(texts))


def topics_of(seed: int) -> tuple[list[str], list[str]]:
    """Return the questions that are learnt from, and those that are asked."""
    before = [question for question, _ in draw_topics(LEARNT, seed=100 + seed)]
    return before, [question for question, _ in draw_topics(ASKED, seed=200 + seed)]


def taught(
    make: Callable[[], WorkerPool], system: Callable[[WorkerPool, Observations, int], Orchestrator]
) -> Play:
    """Return how a case is played whose system learns from single workers on other questions."""

    async def play(seed: int) -> tuple[list[bool], int]:
        pool = make()
        before, now = topics_of(seed)
        said = await answers(system(pool, watched(pool, before), seed), now)
        right = [answer == truth(question) for question, answer in zip(now, said, strict=True)]
        return right, calls_of(pool)

    return play


def teamed(make: Callable[[], WorkerPool], tries: int = 8) -> Play:
    """Return how MASRouter is played: the explorer's trials on other questions, then its own."""

    async def play(seed: int) -> tuple[list[bool], int]:
        pool = make()
        before, now = topics_of(seed)
        explorer = Explorer(pool, seed=seed)
        trials: list[Trial] = []
        for sample in range(tries):
            attempts = (tried(explorer, question, sample) for question in before)
            trials += await asyncio.gather(*attempts)
        system = MASRouter(pool, trials=trials, seed=seed)
        calls = calls_of(pool)
        said = await answers(system, now)
        return [answer == RIGHT for answer in said], calls_of(pool) - calls

    return play


async def tried(explorer: Explorer, question: str, sample: int) -> Trial:
    episode = await explorer.ask(question, context=CallContext(sample=sample))
    right = float(episode.answer == RIGHT)
    workflow = episode.rounds[0].workflow
    trial = trial_of(question, question, workflow, explorer.pool, right=right)
    assert trial is not None
    return trial


# ── cases ─────────────────────────────────────────────────────────────────────────────────────────
def pool_of(*workers: Say) -> Callable[[], WorkerPool]:
    return lambda: planted_pool(**{f"w{index}": say for index, say in enumerate(workers)})


def consensus(pool: str, say: Say, rule: str, predicted: float, single: float) -> Case:
    play = repeated(pool_of(say), lambda workers: Consensus(workers, "w0", n=5))
    return Case("consensus, n = 5", pool, rule, predicted, single, 5, play)


def reflection(
    pool: str, first: float, mends: float, breaks: float, stands: Sequence[str] = ()
) -> Case:
    """Revisions are a chain of two states; answers in ``stands`` are let stand."""
    predicted = revised(first, 0 if WRONG in stands else mends, 0 if RIGHT in stands else breaks, 5)
    say = revising(first, mends, breaks, stands)
    play = repeated(pool_of(say), lambda workers: Reflection(workers, "w0", n=5))
    calls = None if stands else 6
    return Case("reflection, n = 5", pool, "two-state chain", predicted, first, calls, play)


SHARES = (0.75, 0.7, 0.7, 0.65, 0.6)


def mixture(pool: str, merge: Say, layers: int, rule: str, predicted: float) -> Case:
    workers = [merging(noisy(share), merge) for share in SHARES]
    play = repeated(pool_of(*workers), lambda made: MixtureOfAgents(made, "w0", layers=layers))
    pool = f"right {', '.join(map(str, SHARES))}; {pool}"
    calls = layers * len(workers) + 1
    return Case(f"moa, layers = {layers}", pool, rule, predicted, max(SHARES), calls, play)


def context(
    pool: str, rule: str, predicted: float, single: float, make: Callable[[], Planted]
) -> Case:
    play = repeated(lambda: limited_pool(make(), LIMIT), lambda pool: LongContext(pool, "a"))
    return Case("context, times = 5", pool, rule, predicted, single, 1, play)


MEAN, LIMIT = 1000.0, 400


def smoothie(pool: str, workers: Sequence[Say], rule: str, predicted: float, single: float) -> Case:
    def system(made: WorkerPool, seen: Observations, seed: int) -> Smoothie:
        return Smoothie(made, mode="independent", observations=seen)

    play = taught(pool_of(*workers), system)
    name = "smoothie-lite, independent"
    return Case(name, pool, rule, predicted, single, len(workers), play)


def routed(pool: WorkerPool, seen: Observations, seed: int) -> RouterDC:
    return RouterDC(pool, observations=seen, seed=seed)


def quick() -> Planted:
    return Planted("a", noisy(0.6))


def cases() -> list[Case]:
    """Return all cases, in the order of the table: a pool to gain on, one that gives no gain."""
    drawn = [
        consensus(
            "right 0.6, each call anew", noisy(0.6), "binomial majority", majority(0.6, 5), 0.6
        ),
        consensus(
            "right 0.4, each call anew", noisy(0.4), "binomial majority", majority(0.4, 5), 0.4
        ),
    ]
    torn = (majority(0.9, 5) + majority(0.3, 5)) / 2
    uneven_pool = "0.9 on half, 0.3 on half"
    drawn.append(consensus(uneven_pool, uneven(0.9, 0.3), "mean of two majorities", torn, 0.6))
    stands = "right 0.6, mends 0.3, breaks 0.2, lets what is right stand"
    drawn += [
        reflection("right 0.3, mends 0.3, breaks 0", 0.3, 0.3, 0.0),
        reflection("right 0.6, mends 0, breaks 0.1", 0.6, 0.0, 0.1),
        reflection(stands, 0.6, 0.3, 0.2, [RIGHT]),
    ]
    most = jury(SHARES)
    drawn += [
        mixture("merged by count", by_count, 1, "Poisson-binomial majority", most),
        mixture("merged by count", by_count, 2, "the same: layer 2 agrees", most),
        mixture("merged by chance", by_chance, 1, "mean of the workers", sum(SHARES) / len(SHARES)),
    ]
    thought, more = 1 - exp(-LIMIT / MEAN), 1 - exp(-5 * LIMIT / MEAN)
    thinking = "needs 1,000 tokens on average, limit 400"
    drawn += [
        context(thinking, "1 - exp(-5 limit / mean)", more, thought, lambda: Thinker(MEAN)),
        context("right 0.6 whatever the limit", "the worker alone", 0.6, 0.6, quick),
    ]
    return drawn + learners()


def learners() -> list[Case]:
    """Return the cases of systems that choose among workers."""
    shares = (0.4, 0.85, 0.65, 0.1)
    workers = [knowing(share) for share in shares]
    chosen = shares[int(noise_of(shares).argmin())]
    least = "who is least noisy by the formula"
    liars = [knowing(0.9), lying, lying, lying]
    drawn = [
        smoothie("right 0.4, 0.85, 0.65, 0.1", workers, least, chosen, max(shares)),
        smoothie("right 0.9; three that copy an error", liars, "one of the three", 0.0, 0.9),
    ]
    agreeing = pool_of(knowing(0.9), knowing(0.9), knowing(0.0))
    own = taught(agreeing, lambda pool, seen, seed: Smoothie(pool))
    pool, rule = "0.9, 0.9, 0; nothing observed", "0.9² + 0.9 · 0.1"
    drawn.append(Case("smoothie-lite, dependent", pool, rule, 0.9**2 + 0.09, 0.9, 3, own))
    play = taught(pool_of(knowing(0.9, 0.2), knowing(0.2, 0.9), knowing(0.5)), routed)
    pool = "experts 0.9 / 0.2 of two topics, 0.5"
    drawn.append(Case("routerdc-lite", pool, "mean of the experts", 0.9, 0.55, 1, play))
    play = taught(pool_of(knowing(0.5), knowing(0.8), knowing(0.3)), routed)
    pool = "0.5, 0.8, 0.3 whatever is asked"
    drawn.append(Case("routerdc-lite", pool, "the best worker", 0.8, 0.8, 1, play))
    play = teamed(pool_of(soloist(0.9), opening, closing(0.8)))
    pool = "topic 1: one alone, 0.9; topic 2: a chain of two, 0.8"
    drawn.append(Case("masrouter-lite", pool, "mean of the two", 0.85, 0.45, None, play))
    play = teamed(pool_of(noisy(0.4), noisy(0.7), noisy(0.2)), tries=4)
    pool = "who speaks last is right 0.4, 0.7, 0.2"
    drawn.append(Case("masrouter-lite", pool, "the best in the last seat", 0.7, 0.7, None, play))
    return drawn


MEASURED = "predicted | measured | 99.9 % interval | best worker | calls"


def report() -> None:
    """Play every case over every seed, and print the table."""
    print(f"| system | workers | prediction | {MEASURED} |")
    print("|---" * 8 + "|")
    count = ASKED * len(SEEDS)
    for case in cases():
        right = calls = 0
        for seed in SEEDS:
            rights, made = asyncio.run(case.play(seed))
            right += sum(rights)
            calls += made
        low, high = wilson_interval(right, count, confidence=LEVEL)
        print(f"| `{case.system}` | {case.pool} | {case.rule} | {case.predicted:.3f}", end=" ")
        print(f"| {right / count:.3f} | {low:.3f} to {high:.3f} | {case.single:.2f}", end=" ")
        print(f"| {calls / count:.2g} |")


if __name__ == "__main__":
    report()
