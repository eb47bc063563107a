"""Ablations of a Conductor: its plans changed before they are executed, or another prompt.

*Rewired* plans are the planner's own, with one thing changed. So what is lost is what that thing
was worth in these plans; a planner that had been trained without it might make up for it (the
paper's own ablations train anew). What the planner wrote is in its call, in journal and ledger; the
round's completion is the changed plan. A text that is not a workflow stays what it is, so validity
is not touched. Prompt ablations (``examples``, and ``subtasks`` and ``access`` if the template
knows them) ask the planner itself for less.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal, get_args

from openconductor.baselines.pools import around, changed_pool, check_count, ordinal_in
from openconductor.conductor import Conductor
from openconductor.config import one_of
from openconductor.errors import ConfigError, WorkflowError
from openconductor.parser import parse_completion
from openconductor.prompt import EXAMPLES, ExampleName, PreviousName, render_workflow
from openconductor.protocols import CallContext, OnEvent
from openconductor.store import CompletionStore
from openconductor.tasks.simulated import instructions_for
from openconductor.types import Budget, Completion, Episode, Question, Step, Workflow

Access = Literal["index", "none", "binary", "all"]
"""The change of access lists: kept, emptied, ``all`` where there is any, ``all`` everywhere."""


@dataclass(frozen=True, slots=True)
class Rewired:
    """A Conductor whose plans are changed before they are executed.

    Attributes:
        conductor: the Conductor.
        one_worker: the ordinal of the worker that does every step.
        subtasks: False: every worker is told just to solve the question.
        access: the change of the access lists.
        sequential: True: the workers of one question work one at a time, as in the paper.
    """

    conductor: Conductor
    _: KW_ONLY
    one_worker: int | None = None
    subtasks: bool = True
    access: Access = "index"
    sequential: bool = False

    def replaying(self, journal: CompletionStore) -> Rewired:
        """Return it with a Conductor that answers from a journal the calls that are in it."""
        return replace(self, conductor=self.conductor.replaying(journal))

    async def ask(
        self,
        question: Question,
        *,
        budget: Budget | None = None,
        on_event: OnEvent | None = None,
        context: CallContext | None = None,
    ) -> Episode:
        """Answer one question, as the Conductor's ``ask`` does but for the plans."""
        conductor = self.conductor
        turn = asyncio.Lock()

        async def rewrite(complete: Callable[[], Awaitable[Completion]]) -> Completion:
            completion = await complete()
            ordinals = conductor.pool.ordinals
            try:
                plan = parse_completion(completion.text, ordinals, max_steps=conductor.max_steps)
            except WorkflowError:  # invalid, or a plan that accepts: the Conductor sees it as it is
                return completion
            return replace(completion, text=render_workflow(self._rewire(plan, question)))

        async def in_turn(complete: Callable[[], Awaitable[Completion]]) -> Completion:
            async with turn:  # the deadline of the call itself begins when it is sent
                return await complete()

        pool = conductor.pool
        if self.sequential:
            pool = changed_pool(pool, lambda worker: around(worker, in_turn))
        changed = replace(conductor, planner=around(conductor.planner, rewrite), pool=pool)
        return await changed.ask(question, budget=budget, on_event=on_event, context=context)

    def _rewire(self, workflow: Workflow, question: Question) -> Workflow:
        steps: list[Step] = []
        solve = instructions_for(question).solve(question)
        for step in workflow:
            worker = step.worker if self.one_worker is None else self.one_worker
            subtask = step.subtask if self.subtasks else solve
            steps.append(Step(worker, subtask, self._rewire_access(step)))
        return Workflow(tuple(steps))

    def _rewire_access(self, step: Step) -> Sequence[int] | Sequence[str]:
        if self.access == "index" or (self.access == "binary" and not step.access):
            return step.access
        return () if self.access == "none" else "all"


def ablated(
    conductor: Conductor,
    *,
    one_worker: int | str | None = None,
    subtasks: bool = True,
    examples: ExampleName | None = None,
    access: Access | None = None,
    rounds: int | Literal["planned"] | None = "planned",
    previous: PreviousName | None = None,
    sequential: bool = False,
) -> Conductor | Rewired:
    """Return a Conductor without something: the ablations of the Conductor paper, as options.

    Args:
        conductor: the Conductor.
        one_worker: the name or ordinal of the worker that does every step.
        subtasks: False: the planner is told to write none, if its template can say that; else they
            are replaced.
        examples: the worked examples of the prompt: none, of tasks that are trained on (``in``), of
            others (``out``), or two of each (``mixed``); default: the Conductor's own.
        access: ``binary`` or ``index``: the planner is asked for it, if its template can say that;
            else ``index`` keeps its lists and ``binary`` widens them. ``none`` and ``all`` change
            the plans. Default: the Conductor's.
        rounds: the most rounds, an accepting one included: a recursion depth of d is
            ``rounds=d+1``. With None it ends when the planner accepts or the budget is spent.
            Default: the Conductor's own.
        previous: what later rounds are shown of the round before: its ``last`` response or all its
            ``answers``. Default: the Conductor's own.
        sequential: True: the workers of one question work one at a time.

    Raises:
        ConfigError: a value is not one of these, or the template has no examples.
    """
    if rounds not in ("planned", None):
        check_count("ablated.rounds", rounds, 1)
    if access is not None:
        one_of("ablated.access", access, get_args(Access))
    if examples is not None:
        one_of("ablated.examples", examples, EXAMPLES)
    if previous is not None:
        one_of("ablated.previous", previous, get_args(PreviousName))
    in_words = conductor.prompt.template != "compact"
    if examples is not None and not in_words:
        raise ConfigError(
            "ablated.examples: the compact template has no examples, expected a full one"
        )
    prompt, changed = conductor.prompt, access or "index"
    if previous is not None:
        prompt = replace(prompt, previous=previous)
    if examples is not None:
        prompt = replace(prompt, examples=EXAMPLES[examples])
    if in_words and access in ("index", "binary"):
        prompt, changed = replace(prompt, access=access), "index"
    if in_words and not subtasks:
        prompt, subtasks = replace(prompt, subtasks=False), True
    most_rounds = conductor.max_rounds if rounds == "planned" else rounds
    other = replace(conductor, prompt=prompt, max_rounds=most_rounds)
    if one_worker is None and subtasks and changed == "index" and not sequential:
        return other
    worker = None if one_worker is None else ordinal_in(conductor.pool, one_worker)
    return Rewired(
        other, one_worker=worker, subtasks=subtasks, access=changed, sequential=sequential
    )
