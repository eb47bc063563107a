"""Baselines that ask for more answers only where the first ones do not agree.

They are what a clever person builds without any learning: what a Conductor gains by asking more
where it is needed must be more than they gain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from openconductor.baselines.consensus import Key, key_for, majority
from openconductor.baselines.observed import Observations
from openconductor.baselines.pools import (
    Baseline,
    check_count,
    forgiving_pool,
    ordinal_in,
    play_answers,
)
from openconductor.episode import LiveEpisode
from openconductor.errors import ConfigError, Refused
from openconductor.pool import WorkerPool
from openconductor.tasks.instructions import ALONE
from openconductor.types import Step, Workflow

BETWEEN = "+"
"""Stands between the names of workers in one option."""


class Cascade(Baseline):
    """Asks two workers, accepts where they agree, and asks more where they do not.

    The answer is then the most frequent one; a tie goes to the first. A worker that declines has no
    vote.

    Args:
        pool: the workers.
        workers: the names of those that may be asked, in order, with ``+`` between them. "": the
            best ones by the observations; without any, those of the pool in its order.
        n: the most workers that are asked.
        observations: of the workers, on a selection split.

    Raises:
        ConfigError: the pool has no such worker, or fewer than three can be asked.
    """

    needs = Observations

    def __init__(
        self,
        pool: WorkerPool,
        *,
        workers: str = "",
        n: int = 4,
        observations: Observations | None = None,
    ) -> None:
        check_count("Cascade.n", n, 3)
        names = _rank(pool, observations)
        if workers:
            names = [name.strip() for name in workers.split(BETWEEN)]
        ordinals = [ordinal_in(pool, name) for name in names[:n]]
        if len(set(ordinals)) < 3:
            raise ConfigError(
                f"Cascade.workers: got {', '.join(names)}, expected at least 3 different workers"
            )
        super().__init__(forgiving_pool(pool), "cascade of " + ", ".join(names[:n]))
        self._first, self._more = ordinals[:2], ordinals[2:]

    async def play(self, live: LiveEpisode) -> str | None:
        """Play a round of two workers, and one of the others where they do not agree."""
        key = key_for(live.question)
        answers = await _ask(live, self._first)
        if not _agree(answers, key, len(self._first)):
            answers += await _ask(live, self._more, spare=bool(answers))
        return majority(answers, key)


class EarlyVote(Baseline):
    """Lets one worker vote as ``consensus`` does, and stops when the vote is decided.

    It first asks as many times as a majority needs, then once more until no other answer can win.

    Args:
        pool: the workers.
        worker: the worker's name or ordinal.
        n: the most samples.

    Raises:
        ConfigError: the pool has no such worker, or ``n`` is below 3.
    """

    def __init__(self, pool: WorkerPool, worker: int | str, *, n: int = 5) -> None:
        self._worker = ordinal_in(pool, worker)
        check_count("EarlyVote.n", n, 3)
        super().__init__(forgiving_pool(pool), f"{pool[self._worker].name}, early vote of {n}")
        self._n = n

    async def play(self, live: LiveEpisode) -> str | None:
        """Play a round of a majority, and one of each further sample."""
        key = key_for(live.question)
        samples = self._n // 2 + 1
        answers = await _ask(live, [self._worker] * samples)
        while not _is_decided(answers, key, self._n - samples):
            answers += await _ask(live, [self._worker], spare=True)
            samples += 1
        return majority(answers, key)


def _rank(pool: WorkerPool, observations: Observations | None) -> list[str]:
    """Return the pool's workers, the best observed ones first."""
    names = list(pool.names.values())
    if observations is None:
        return names
    shares = observations.shares()
    return sorted(names, key=lambda name: -shares.get(name, 0.0))


async def _ask(live: LiveEpisode, ordinals: Sequence[int], *, spare: bool = False) -> list[str]:
    """Ask workers side by side in a round; refusals of all are an error unless ``spare``."""
    steps = [Step(ordinal, ALONE) for ordinal in ordinals]
    try:
        answers = await play_answers(live, Workflow(tuple(steps)))
    except Refused:
        if not spare:
            raise
        return []
    return list(answers.values())


def _agree(answers: Sequence[str], key: Key, count: int) -> bool:
    """Return True if exactly ``count`` answers were read and all are the same."""
    keys = {key(answer) for answer in answers}
    return len(answers) == count and len(keys) == 1 and None not in keys


def _is_decided(answers: Sequence[str], key: Key, left: int) -> bool:
    """Return True if the votes that are left cannot change which answer wins."""
    votes = Counter(filter(None, map(key, answers)))
    counts = [count for _, count in votes.most_common(2)]
    counts += [0, 0]  # of answers that nobody gave
    return left == 0 or counts[0] > counts[1] + left
