"""Baselines that make one answer of several: by a vote, or by a worker that merges them.

Consensus is self-consistency (Wang et al. 2022, arXiv 2203.11171); Mixture-of-Agents is that of
Wang et al. 2024 (arXiv 2406.04692).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from openconductor.baselines.pools import (
    Baseline,
    check_count,
    forgiving_pool,
    ordinal_in,
    play_answers,
)
from openconductor.context import join_turns
from openconductor.episode import LiveEpisode
from openconductor.errors import ConfigError
from openconductor.graders.extraction import find_answer
from openconductor.graders.formulas.math_text import normalise, words_of
from openconductor.graders.numerals import read_numeral
from openconductor.pool import WorkerPool
from openconductor.tasks.instructions import ALONE, MERGE, Instructions
from openconductor.tasks.simulated import instructions_for
from openconductor.types import Message, Question, Step, Workflow

Key = Callable[[str], str | None]
"""Returns the answer in a response; equal answers are equal texts. None: there is no answer."""


class Consensus(Baseline):
    """Asks one worker ``n`` times at once and takes the majority.

    The samples are the steps of one workflow, so each is a call of its own to caches, journals and
    simulated workers. The first one is the same call as the worker's when it answers alone. A
    worker behind HTTP must sample (``temperature`` above 0, and no fixed ``seed``), or all samples
    are equal. A sample that is declined has no vote.

    Args:
        pool: the workers.
        worker: the worker's name or ordinal.
        n: how many samples.
        key: returns the answer in a response; default: ``answer_key``, and the whole response where
            answers are bare values.

    Raises:
        ConfigError: the pool has no such worker, ``n`` is below 1, or the key is not a function.
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

    async def play(self, live: LiveEpisode) -> str | None:
        """Play one round, of all samples."""
        answers = await play_answers(live, self._workflow)
        key = self._key or key_for(live.question)
        return majority(list(answers.values()), key)


def majority(responses: Sequence[str], key: Key) -> str:
    """Return the first response with the most frequent answer; a tie goes to the first answer.

    A response in which the key finds nothing has no vote. If it finds nothing in any, equal texts
    are equal answers.

    Args:
        responses: one at least.
        key: returns the answer in a response.

    >>> majority(["Answer: 3", "I do not know.", "Answer: 4", "So the answer is 4."], answer_key)
    'Answer: 4'
    """
    keys = [key(response) for response in responses]
    if not any(keys):
        keys = [" ".join(response.split()) for response in responses]
    counts = Counter(filter(None, keys))
    winner, _ = counts.most_common(1)[0]  # of equal counts the first
    return responses[keys.index(winner)]


def answer_key(response: str) -> str | None:
    r"""Return what a response marks as its answer, in one form.

    Numbers are compared by value, words in one case, all else as normalised LaTeX.

    >>> answer_key("The answer is 0.5."), answer_key("\\boxed{\\frac12}")
    ('1/2', '1/2')
    >>> answer_key("**Answer:** (C)")
    'c'
    """
    return ", ".join(_one_form(item) for item in find_answer(response).items) or None


def key_for(question: Question) -> Key:
    """Return what reads the answers to a question."""
    words = instructions_for(question)
    return _value_key(words) if words.bare else answer_key


def _value_key(words: Instructions) -> Key:
    """Return a key for bare values: the response itself, if it is an answer."""

    def key(response: str) -> str | None:
        return " ".join(response.split()) if words.is_answer(response) else None

    return key


def _one_form(item: str) -> str:
    text = normalise(item)
    numeral = read_numeral(text)
    if numeral is not None and numeral.base is None and numeral.unit is None:
        return f"{numeral.value}%" if numeral.percent else f"{numeral.value}"
    return (words_of(text) or "").casefold() or " ".join(text.split())


class MixtureOfAgents(Baseline):
    """Lets all workers propose side by side, and one aggregator merge what they propose.

    A worker that declines to propose is left out. If the aggregator declines, the episode ends.

    Args:
        pool: the workers, all of which propose, the aggregator too.
        aggregator: the name or ordinal of the worker that merges.
        layers: layers of proposals before the merge. In each but the first, every worker sees all
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

    async def play(self, live: LiveEpisode) -> str | None:
        """Play a round a layer, and one of the merge."""
        opening, subtask = live.opening, ALONE
        merge = instructions_for(live.question).merge()
        for _ in range(self._layers):
            steps = [Step(ordinal, subtask) for ordinal in self.pool.ordinals]
            proposals = await play_answers(live, Workflow(tuple(steps)), opening)
            opening, subtask = _with_references(live, proposals.values()), merge
        merging = Workflow((Step(self._aggregator, merge),))
        merged = await play_answers(live, merging, opening)
        return merged[0]


def _with_references(live: LiveEpisode, references: Iterable[str]) -> tuple[Message, ...]:
    """Return the opening of those who merge, with the references in the system prompt.

    Bare values are turns of the conversation, because their workers read values only there.
    """
    question, opening = live.question, live.opening
    words = instructions_for(question)
    if words.bare:
        turns = list(opening)
        for reference in references:
            turns += [Message("user", words.solve(question)), Message("assistant", reference)]
        return tuple(turns)
    numbered = [f"{number}. {reference}" for number, reference in enumerate(references, 1)]
    merge = Message("system", "\n".join((MERGE, *numbered)))
    if opening[0].role == "system":  # the question's own system prompt comes first
        return join_turns((opening[0], merge, *opening[1:]))
    return join_turns((merge, *opening))
