"""The gym as a benchmark, and everything that the gym brings to whoever works with its questions.

``GymTask`` draws problems by seed, judged by exact comparison; ``GYM`` is its simulation. The exact
levels are imported where they are asked for, so that a training never loads them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import cast

from openconductor.errors import ConfigError
from openconductor.graders.exact import ExactGrader
from openconductor.gym import sampling
from openconductor.gym.questions import (
    EQUAL_MIX,
    KINDS,
    OPENERS,
    SPLITS,
    GymQuestion,
    Kind,
    Split,
    draw_question,
    draw_questions,
    draw_reading,
    is_readable,
    read_question,
)
from openconductor.gym.workers import Profile, SimulatedWorker
from openconductor.gym.world import COMPARE, read_value, write_value
from openconductor.pool import WorkerPool
from openconductor.tasks.data.items import Benchmark, Item, Loaded, Source
from openconductor.tasks.instructions import ALONE, Instructions
from openconductor.tasks.simulated import Plan, Simulation
from openconductor.types import Problem, Question, Step, Workflow

_CHAIN = ("opener", "middle", "closer")
_FEWEST_READ, _MOST_READ = 2, 5  # operations of an exercise in reading


class GymTask(Benchmark):
    """``limit`` questions of the gym, all kinds alike.

    Raises:
        ConfigError: a limit below 1, or no such split.
    """

    def __init__(self, *, limit: int = 400, seed: int | None = None, split: str = "test") -> None:
        about = "drawn questions about lists, for simulated workers; no data needed"
        super().__init__("gym", about, SPLITS, ExactGrader(), split=split, limit=limit)
        self._count = limit
        self._seed = seed or 0

    def _read(self, split: str) -> Loaded:
        items = tuple(
            Item(question.problem(), canonical=write_value(question.answer), subject=question.kind)
            for question in draw_questions(cast("Split", split), self._count, seed=self._seed)
        )
        note = f"{self._count} questions drawn with seed {self._seed}"
        source = Source(
            "drawn", split, pinned=True, licence="Apache-2.0", problems=len(items), notes=(note,)
        )
        return Loaded(items, source)


class GymInstructions(Instructions):
    """Instructions in the gym's few words; a Conductor's subtasks can use the same."""

    bare = True

    def solve(self, question: Question) -> str:
        """Return the question itself, which says all that is to be done."""
        return _read(question).text

    def revise(self) -> str:
        """Return the instruction to check an attempt."""
        return COMPARE[1]

    def merge(self) -> str:
        """Return the instruction to compare the answers in the context."""
        return COMPARE[0]

    def roles(
        self, question: Question, roles: Sequence[str], texts: Mapping[str, str]
    ) -> list[str]:
        """Return each seat's instruction; the seats of a chain share out the operations.

        A seat of a chain that is left without an operation checks the work before it.
        """
        del texts
        phrases = [operation.phrase(wording) for operation, wording in _read(question).operations]
        chained = sum(role in _CHAIN for role in roles)
        parts: list[str] = []
        if chained > 1:
            parts = [*phrases[: chained - 1], ", then ".join(phrases[chained - 1 :])]
        instructions: list[str] = []
        for role in roles:
            if role in _CHAIN:
                part = parts.pop(0) if parts else ""
                instructions.append(part or self.revise())
            elif role == "solver":
                instructions.append(ALONE)
            elif role in ("judge", "reviser"):
                instructions.append(self.merge())
            elif role == "critic":
                instructions.append(self.revise())
            else:
                instructions.append(self.solve(question))
        return instructions

    def is_answer(self, response: str) -> bool:
        """Return True if the response is a value; a worker admits a failure in prose."""
        return read_value(response) is not None

    def stands(self, before: str, response: str) -> bool:
        """Return True if the worker gives the same value again."""
        return response == before and self.is_answer(response)


class GymSimulation(Simulation):
    """The gym's questions, plans and exact levels."""

    name = "gym"
    kinds = KINDS
    instructions = GymInstructions()

    def understands(self, question: Question) -> bool:
        """Return True if the question is one line of the gym's, opener included."""
        if not isinstance(question, str) or "\n" in question:
            return False
        return question.startswith(OPENERS) and read_question(question) is not None

    def is_readable(self, text: str) -> bool:
        """Return True if the text's first paragraph holds a list and operations."""
        return is_readable(text)

    def draw(
        self,
        split: str,
        count: int,
        *,
        seed: int,
        start: int = 0,
        mix: Mapping[str, float] | None = None,
    ) -> list[Problem]:
        """Draw problems of a split."""
        weights = EQUAL_MIX if mix is None else cast("Mapping[Kind, float]", mix)
        part = cast("Split", split)
        questions = draw_questions(part, count, seed=seed, mix=weights, start=start)
        return [question.problem() for question in questions]

    def phrases(self, *, cards: bool = False) -> list[str]:
        """Return the phrases of questions, subtasks and thoughts, and of cards."""
        return sampling.phrases(cards=cards)

    def draw_plan(
        self,
        rng: random.Random,
        index: int,
        pool: WorkerPool,
        *,
        max_steps: int,
        rounds: int,
        cards: bool,
    ) -> Plan:
        """Draw a question and a random workflow; in recursion every other turn follows a round.

        The last plan of a turn is an exercise in reading, where plans have two steps or more.
        """
        reads = max_steps >= _FEWEST_READ
        turn, kind = divmod(index, len(KINDS) + reads)
        previous = None
        if kind == len(KINDS):
            length = rng.randint(_FEWEST_READ, min(max_steps, _MOST_READ))
            question = draw_reading(length, rng)
            workflow = sampling.reading_workflow(rng, question, pool.ordinals)
        else:
            question = draw_question("train", KINDS[kind], rng)
            workflow = sampling.random_workflow(
                rng, question, pool.ordinals, max_steps=max_steps, skips=False
            )
            if rounds > 1 and turn % 2:
                previous = sampling.random_round(rng, question, pool.ordinals, max_steps=max_steps)
                accepting = Workflow(())
                workflow = rng.choice((workflow, accepting))
        categories = sampling.draw_categories(rng, workflow, pool.cards) if cards else ()
        thought = sampling.write_thought(workflow, question, categories)
        return Plan(question.text, workflow, thought, previous)

    def write_index(self, cards: Mapping[int, str]) -> str:
        """Return the workers by category, the best first."""
        return sampling.write_index(cards)

    def knows(self, pool: WorkerPool) -> bool:
        """Return True if all workers are simulated ones of the gym."""
        return all(isinstance(worker.provider, SimulatedWorker) for _, worker in pool)

    def random_workflow(
        self, rng: random.Random, question: Question, ordinals: Sequence[int], *, max_steps: int
    ) -> Workflow | None:
        """Draw a workflow whose number of steps follows the operations of the question."""
        drawn = read_question(question) if isinstance(question, str) else None
        if drawn is None:
            return None
        return sampling.random_workflow(rng, drawn, ordinals, max_steps=max_steps)

    @property
    def fixed_workers(self) -> tuple[int, ...]:
        """The ordinals of the constant found by search."""
        from openconductor.gym.levels import BEST_FIXED

        return BEST_FIXED.workers

    def fixed_workflow(self, question: Question) -> Workflow:
        """Return the constant found by search, with the best subtasks for the question."""
        from openconductor.gym.levels import fixed_workflow

        return fixed_workflow(_read(question))

    def heuristic_workflow(self, question: Question, pool: WorkerPool) -> Workflow:
        """Return a chain of specialists; a smudged list is read four times and compared."""
        from openconductor.gym.exact import best_part

        asked, profiles = _read(question), _offered(pool)
        parts = [best_part([operation], profiles) for operation, _ in asked.operations]
        referees = [ordinal for ordinal, profile in profiles.items() if profile.referee]
        if asked.smudged and referees:
            worker, subtask = parts[0]
            attempts = [Step(worker, subtask)] * 4
            comparison = Step(referees[0], COMPARE[0], range(4))
            return Workflow((*attempts, comparison))
        steps: list[Step] = []
        for index, (worker, subtask) in enumerate(parts):
            access = (index - 1,) if index else ()
            steps.append(Step(worker, subtask, access))
        return Workflow(tuple(steps))

    def oracle_workflow(self, question: Question, pool: WorkerPool) -> Workflow:
        """Return the best workflow over the pool's workers, found by exact search."""
        from openconductor.gym.exact import oracle_workflow

        workflow, _ = oracle_workflow(_read(question), _offered(pool))
        return workflow

    def expected_accuracy(
        self, question: Question, workflow: Workflow, pool: WorkerPool | None = None
    ) -> float | None:
        """Return the exact chance of a right answer over the pool, or over all eight workers."""
        from openconductor.gym.exact import ALL, expected_accuracy

        read = read_question(question) if isinstance(question, str) else None
        if read is None:
            return None
        return expected_accuracy(read, workflow, ALL if pool is None else _offered(pool))

    def levels(self, problems: Sequence[Problem], pool: WorkerPool) -> Mapping[str, float]:
        """Return the mean levels over the problems; only the random one is estimated."""
        from openconductor.gym.levels import reference_levels

        questions = [_read(problem.question) for problem in problems]
        levels = reference_levels(questions, _offered(pool))
        return {
            "random": levels.random,
            "best_worker": levels.best_worker,
            "oracle": levels.oracle,
        }


GYM = GymSimulation()


def _offered(pool: WorkerPool) -> Mapping[int, Profile]:
    """Return the profiles of the pool's workers by ordinal."""
    return {
        ordinal: worker.provider.profile
        for ordinal, worker in pool
        if isinstance(worker.provider, SimulatedWorker)
    }


def _read(question: Question) -> GymQuestion:
    read = read_question(question) if isinstance(question, str) else None
    if read is None:
        raise ConfigError(f"the question {str(question)[:80]!r}: expected one of the gym")
    return read
