"""Several answers to one question, of which one is made: by a vote, or by a worker that merges them.

In: a pool and a worker. Out: Episodes. Consensus is self-consistency (Wang et al. 2022, arXiv
2203.11171); Mixture-of-Agents is that of Wang et al. 2024 (arXiv 2406.04692).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from openconductor.baselines.pools import Baseline, check_count, forgiving_pool, ordinal_in, spoken
from openconductor.context import join_turns
from openconductor.episode import LiveEpisode
from openconductor.errors import ConfigError
from openconductor.graders.extraction import find_answer
from openconductor.graders.math_text import normalise, words_of
from openconductor.graders.numerals import read_numeral
from openconductor.pool import WorkerPool
from openconductor.tasks.instructions import ALONE, MERGE, Instructions
from openconductor.tasks.simulated import instructions_for
from openconductor.types import Message, Step, Workflow

Key = Callable[[str], str | None]
"""What a response says, in a form in which equal answers are equal texts; None where it says nothing."""


class Consensus(Baseline):
    """Asks one worker ``n`` times at once and takes the majority.

    The samples are the steps of one workflow, so each is a call of its own to caches, journals and
    simulated workers, and the first one is the same call as the worker's when it answers alone. A
    worker behind HTTP must sample (``temperature`` above 0, and no fixed ``seed``), or all samples
    are one. A sample that is declined has no vote.

    Args:
        pool: the workers.
        worker: the worker's name or ordinal.
        n: how many samples.
        key: what a response says; default: ``answer_key``, and the whole
            response where answers are bare values.

    Raises:
        ConfigError: the pool has no such worker, ``n`` is below 1, or the key is no function.
    """

    def __init__(
        self, pool: WorkerPool, worker: int | str, *, n: int = 5, key: Key | None = None
    ) -> None:
        ordinal = ordinal_in(pool, worker)
        check_count("Consensus.n", n, 1)
        if key is not None and not callable(key):
            raise ConfigError(
                f"Consensus.key: got {key!r}, expected a function from a response to a text"
            )
        super().__init__(forgiving_pool(pool), f"{pool[ordinal].name}, {n}x consensus")
        self._workflow = Workflow((Step(ordinal, ALONE),) * n)
        self._key = key

    async def play(self, stage: LiveEpisode) -> str | None:
        """One round, of all samples."""
        said = await spoken(stage, self._workflow)
        if said is None:
            return None
        key, words = self._key, instructions_for(stage.question)
        if key is None:
            key = _value_key(words) if words.bare else answer_key
        return majority(list(said.values()), key)


def majority(responses: Sequence[str], key: Key) -> str:
    """The first response that says what most of them say; of several that are said as often, the one said first.

    A response in which the key finds nothing has no vote. Where it finds nothing in any, equal
    texts are equal answers.

    Args:
        responses: one at least.
        key: what a response says.

    >>> majority(["Answer: 3", "I do not know.", "Answer: 4", "So the answer is 4."], answer_key)
    'Answer: 4'
    """
    keys = [key(response) for response in responses]
    if not any(keys):
        keys = [" ".join(response.split()) for response in responses]
    ((winner, _),) = Counter(filter(None, keys)).most_common(1)  # of equal counts the first
    return responses[keys.index(winner)]


def answer_key(response: str) -> str | None:
    r"""What a response marks as its answer, in one form: numbers by value, words in one case, else normalised LaTeX.

    >>> answer_key("The answer is 0.5."), answer_key("\\boxed{\\frac12}"), answer_key("**Answer:** (C)")
    ('1/2', '1/2', 'c')
    """
    return ", ".join(_one_form(item) for item in find_answer(response).items) or None


def _value_key(words: Instructions) -> Key:
    """Return a key for bare values: the response itself, where it is an answer."""

    def key(response: str) -> str | None:
        return " ".join(response.split()) if words.is_answer(response) else None

    return key


def _one_form(item: str) -> str:
    text = normalise(item)
    numeral = read_numeral(text)
    if numeral is not None and numeral.base is None and numeral.unit is None:
        return f"{numeral.value}{'%' if numeral.percent else ''}"
    return (words_of(text) or "").casefold() or " ".join(text.split())


class MixtureOfAgents(Baseline):
    """All workers propose side by side, one aggregator merges what they propose.

    A worker that declines to propose is passed over; where the aggregator declines, the episode
    ends in that.

    Args:
        pool: the workers, all of which propose, the aggregator too.
        aggregator: the name or ordinal of the worker that merges.
        layers: layers of proposals before the merge: in each but the first, every worker sees all
            proposals of the one before, in its system prompt. The original counts the merge as one
            more: its default of 3 layers is ``layers=2`` here; the Conductor paper's 8 calls for 7
            workers are ``layers=1``.

    Raises:
        ConfigError: the pool has no such worker, or ``layers`` is below 1.
    """

    def __init__(self, pool: WorkerPool, aggregator: int | str, *, layers: int = 1) -> None:
        self._aggregator = ordinal_in(pool, aggregator)
        check_count("MixtureOfAgents.layers", layers, 1)
        super().__init__(forgiving_pool(pool), f"MoA, merged by {pool[self._aggregator].name}")
        self._layers = layers

    async def play(self, stage: LiveEpisode) -> str | None:
        """A round a layer, and one of the merge."""
        opening, instruction = stage.opening, ALONE
        said: dict[int, str] | None = {}
        for workers in (*[self.pool.ordinals] * self._layers, (self._aggregator,)):
            said = await spoken(
                stage, Workflow(tuple(Step(worker, instruction) for worker in workers)), opening
            )
            if said is None:
                return None
            opening, instruction = (
                _with_references(stage, said.values()),
                instructions_for(stage.question).merge(),
            )
        return said[0]


def _with_references(stage: LiveEpisode, references: Iterable[str]) -> tuple[Message, ...]:
    """What opens the context of those who merge: the references are part of the system prompt, as in the original.

    Bare values are turns, for their workers read values in turns alone.
    """
    question, opening = stage.question, stage.opening
    words = instructions_for(question)
    if words.bare:
        told = words.solve(question)
        turns = ((Message("user", told), Message("assistant", one)) for one in references)
        return (*opening, *(turn for both in turns for turn in both))
    numbered = (f"{number}. {reference}" for number, reference in enumerate(references, 1))
    place = opening[0].role == "system"  # what is said there already comes first
    return join_turns(
        (*opening[:place], Message("system", "\n".join((MERGE, *numbered))), *opening[place:])
    )
