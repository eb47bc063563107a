"""Estimate the calls, tokens and dollars of an evaluation before anything is paid for.

Each system is played on a few questions. Stand-ins answer at once in place of workers and planners,
so that the number of calls is what the system itself makes. The length of answers and plans is
assumed (the constants below). Simulated workers answer themselves, because they cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

from openconductor.calls.options import guess_tokens
from openconductor.errors import OpenConductorError
from openconductor.evaluation import Outcome
from openconductor.evaluation.eval_config import WORKER, EvalConfig, Spec
from openconductor.evaluation.records import record_of
from openconductor.evaluation.sheets import Sheet
from openconductor.evaluation.systems import EXPLORER, System, Workshop, explores
from openconductor.prompt import render_workflow
from openconductor.protocols import CallContext, OnText, Provider
from openconductor.tasks.simulated import find_simulation
from openconductor.types import Completion, Message, Sampling, Step, Usage, Workflow

STEPS = 3
"""The steps of a workflow."""
ANSWER_TOKENS = 700
"""The tokens that a worker writes in a call."""
PLAN_TOKENS = 400
"""The tokens that a planner writes in a call."""
ASSUMED = (
    f"assumed: {STEPS} steps a workflow, {ANSWER_TOKENS} tokens an answer, {PLAN_TOKENS} a plan, "
    "no repeated attempts"
)
QUESTION = "word " * 100
"""Stands for a question that is not here."""

_PLAYED = 2  # questions of each task


@dataclass(frozen=True, slots=True)
class SystemNeeds:
    """What a system asks of workers and planners in a whole evaluation.

    Attributes:
        system: its name; ``learning`` for the questions that trained systems learn from.
        calls, tokens: how many.
        dollars: None: a price is unknown.
    """

    system: str
    calls: int
    tokens: int
    dollars: Decimal | None


async def estimate_needs(
    config: EvalConfig,
    workshop: Workshop,
    asked: Sequence[Spec],
    evaluated: Sequence[Sheet],
    learning: Sheet | None,
) -> list[SystemNeeds]:
    """Estimate what each system asks for, and what the trained ones learn from.

    Args:
        config: the recipe.
        workshop: makes the systems; every one of them is checked.
        asked: the systems.
        evaluated: the questions that are evaluated.
        learning: the questions that trained systems learn from; None: no system learns.
    """
    if find_simulation(config.pool) is None:
        steps = min(STEPS, config.conductor.max_steps or STEPS)
        plan = partial(_StandIn, ordinals=workshop.pool.ordinals, steps=steps)
        workshop = workshop.replacing(worker=_StandIn, planner=plan)
    needs: list[SystemNeeds] = []
    for spec in asked:
        needs.append(await _play(workshop.make_untrained(spec), evaluated, config.repeats))
    if learning is not None:
        alone = [Spec(WORKER, name) for name in workshop.pool.names.values()]
        parts = [await _play(workshop.make(spec), [learning], 1) for spec in alone]
        if explores(asked, config):
            explorer = workshop.make(Spec(EXPLORER))
            parts.append(await _play(explorer, [learning], config.learn.trials))
        needs.append(add_up("learning", parts))
    return needs


def add_up(name: str, parts: Sequence[SystemNeeds]) -> SystemNeeds:
    """Return the needs of several systems together."""
    dollars = [part.dollars for part in parts if part.dollars is not None]
    return SystemNeeds(
        name,
        sum(part.calls for part in parts),
        sum(part.tokens for part in parts),
        sum(dollars, Decimal(0)) if len(dollars) == len(parts) else None,
    )


async def _play(system: System, sheets: Sequence[Sheet], repeats: int) -> SystemNeeds:
    """Play a system on the first questions of each task, and scale up what it used."""
    calls = tokens = dollars = Decimal(0)
    unpriced = 0
    for sheet in sheets:
        played = sheet.problems[:_PLAYED]
        times = Decimal(len(sheet.problems) * repeats) / max(1, len(played))
        for number, problem in enumerate(played):
            context = CallContext(sample=number)
            try:
                episode = await system.orchestrator.ask(
                    problem.question, budget=system.budget, context=context
                )
            except OpenConductorError as error:  # the question's own budget is spent
                if error.episode is None:
                    raise
                episode = error.episode
            record = record_of(Outcome(problem, episode, None), system=system.name)
            calls += times * record.calls
            tokens += times * record.usage.tokens
            dollars += times * record.usage.dollars
            unpriced += record.usage.unpriced_calls
    known = None if unpriced else dollars
    return SystemNeeds(system.name, round(calls), round(tokens), known)


class _StandIn(Provider):
    """Answers at once in place of another provider, and costs as much.

    With ``steps`` it plans: each workflow has so many, which go around ``ordinals``.
    """

    def __init__(self, provider: Provider, ordinals: Sequence[int] = (), steps: int = 0) -> None:
        self.prices_itself = provider.prices_itself and not provider.nests
        self._unpriced = int(provider.nests)  # the prices of its workers are not known here
        self._ordinals = ordinals
        self._steps = steps

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Answer with a text of the assumed length, or of the call's token limit."""
        read, most = guess_tokens(messages, sampling)
        assumed = PLAN_TOKENS if self._steps else ANSWER_TOKENS
        written = min(assumed, most or assumed)
        text = "word " * written
        if self._steps:
            count = len(self._ordinals)
            places = [(call.sample + step) % count for step in range(self._steps)]
            steps = [Step(self._ordinals[place], "Solve it.", "all") for place in places]
            text = render_workflow(Workflow(tuple(steps)))
        return Completion(
            text, usage=Usage(max(read, 1), 0, written, unpriced_calls=self._unpriced)
        )
