"""Simulated tasks: questions that are drawn, and workers whose behaviour is known exactly.

``SIMULATIONS`` names them by the task, lazily as ``module:attribute``. A ``Simulation`` brings all
that such a task knows: its instructions, its plans to learn from, and its exact levels. Nobody
outside needs to know which simulation it is.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import cast

from openconductor.config import load_registered
from openconductor.pool import WorkerPool
from openconductor.tasks.instructions import Instructions
from openconductor.types import Problem, Question, Round, Workflow

SIMULATIONS: dict[str, str] = {"gym": "openconductor.tasks.gym:GYM"}


@dataclass(frozen=True, slots=True)
class Plan:
    """A random plan to learn the form from.

    Attributes:
        question: the text of the question.
        workflow: a valid workflow; with an empty one the Conductor accepts the previous answer.
        thought: the text before the workflow.
        previous: the round before, in recursion.
    """

    question: str
    workflow: Workflow
    thought: str
    previous: Round | None = None


class Simulation(ABC):
    """Everything that a simulated task knows about its questions and workers.

    Attributes:
        name: of the task, and of the pool of its workers.
        kinds: the kinds of question, from easy to hard.
        learnt, tested: the splits that a training learns from and is measured on.
        instructions: the words that its workers understand.
    """

    name: str
    kinds: tuple[str, ...]
    learnt = "train"
    tested = "test"
    instructions: Instructions

    # ── questions ─────────────────────────────────────────────────────────────────────────────────
    @abstractmethod
    def understands(self, question: Question) -> bool:
        """Return True if the question is one of this task's."""

    @abstractmethod
    def is_readable(self, text: str) -> bool:
        """Return True if its workers can work on the text."""

    @abstractmethod
    def draw(
        self,
        split: str,
        count: int,
        *,
        seed: int,
        start: int = 0,
        mix: Mapping[str, float] | None = None,
    ) -> list[Problem]:
        """Draw problems; problem ``i`` depends only on (split, seed, i, mix).

        Args:
            split: the split.
            count: how many.
            seed: of the draws.
            start: the index of the first problem.
            mix: weights by kind; None: all alike.
        """

    # ── what a fresh model learns first ───────────────────────────────────────────────────────────
    @abstractmethod
    def phrases(self, *, cards: bool = False) -> list[str]:
        """Return the texts that a fresh model has one token for; ``cards`` adds those of cards."""

    @abstractmethod
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
        """Draw plan number ``index`` of a cold start, over the workers on offer.

        Args:
            rng: the random state.
            index: counts the plans, so that kinds of question alternate.
            pool: the workers on offer.
            max_steps: the most steps.
            rounds: 2 adds plans that follow a round.
            cards: True if thoughts name what is looked up in the workers' cards.
        """

    @abstractmethod
    def write_index(self, cards: Mapping[int, str]) -> str:
        """Return which worker is listed for what: the solution of an exercise in reading cards."""

    # ── plans and levels ──────────────────────────────────────────────────────────────────────────
    @abstractmethod
    def knows(self, pool: WorkerPool) -> bool:
        """Return True if all workers of the pool are this task's."""

    @abstractmethod
    def random_workflow(
        self, rng: random.Random, question: Question, ordinals: Sequence[int], *, max_steps: int
    ) -> Workflow | None:
        """Draw a valid workflow that ignores who is good at what; None: it cannot be read."""

    @property
    @abstractmethod
    def fixed_workers(self) -> tuple[int, ...]:
        """The ordinals of the workers that the best fixed workflow needs."""

    @abstractmethod
    def fixed_workflow(self, question: Question) -> Workflow:
        """Return the best workflow that has the same workers and access for every question."""

    @abstractmethod
    def heuristic_workflow(self, question: Question, pool: WorkerPool) -> Workflow:
        """Return the workflow that somebody would write who has read how the workers behave."""

    @abstractmethod
    def oracle_workflow(self, question: Question, pool: WorkerPool) -> Workflow:
        """Return the workflow with the highest expected accuracy.

        Raises:
            ConfigError: the question is not this task's.
        """

    @abstractmethod
    def expected_accuracy(
        self, question: Question, workflow: Workflow, pool: WorkerPool | None = None
    ) -> float | None:
        """Return the exact chance that the workflow answers the question.

        ``pool`` None: the default workers. The result is None if the question cannot be read.
        """

    @abstractmethod
    def levels(self, problems: Sequence[Problem], pool: WorkerPool) -> Mapping[str, float]:
        """Return the mean expected accuracies of ``random``, ``best_worker`` and ``oracle``."""


def find_simulation(name: str) -> Simulation | None:
    """Return the simulation that belongs to the task of this name; None: it is not simulated."""
    return _load(name) if name in SIMULATIONS else None


@cache
def simulations() -> tuple[Simulation, ...]:
    """Return all simulations."""
    return tuple(map(_load, SIMULATIONS))


def _load(name: str) -> Simulation:
    return cast("Simulation", load_registered(SIMULATIONS, name, what="simulation"))


def simulation_of(question: Question) -> Simulation | None:
    """Return the simulation that the question belongs to; None: it is not simulated."""
    for simulation in simulations():
        if simulation.understands(question):
            return simulation
    return None


_FOR_LANGUAGE_MODELS = Instructions()


def instructions_for(question: Question) -> Instructions:
    """Return the words in which workers are asked about the question."""
    simulation = simulation_of(question)
    return _FOR_LANGUAGE_MODELS if simulation is None else simulation.instructions
