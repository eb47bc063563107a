"""An episode asked again: a round of it with other steps, or the question with a new plan.

What the episode recorded is not paid again: a call at the same place, of the same worker and with
the same messages, is answered from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial

from openconductor.calls.budget import Account, Payer, RunBudget
from openconductor.calls.options import guess_tokens
from openconductor.conductor import Conductor
from openconductor.context import join_turns, step_context
from openconductor.episode import LiveEpisode
from openconductor.ledger import draw_up
from openconductor.parser import validate_workflow
from openconductor.pool import Worker, WorkerPool
from openconductor.prompt import check_question, tools_as_text
from openconductor.protocols import CallContext, OnEvent
from openconductor.serving.turn import Ask
from openconductor.store import StoredEpisode
from openconductor.store.keys import request_hash
from openconductor.types import (
    Budget,
    Completion,
    Episode,
    Message,
    Price,
    Question,
    Sampling,
    Step,
    StepResult,
    Usage,
    Workflow,
)
from openconductor.ui.asker import CallPrice, EpisodeChange, results_of

Place = tuple[int, int | None]
"""The round and the step of a call."""

_FREE = Price(Decimal(0), Decimal(0))
_NOTHING = Sampling()


class NewCallsBudget(RunBudget):
    """A budget that pays for the calls that are made, and not for recorded ones.

    Args:
        budget: its limits.
        above: pays, too.
    """

    owner = "the budget of asking again"
    option = "it"

    def __init__(self, budget: Budget, above: Payer | None) -> None:
        super().__init__(budget)
        self._above = above

    @property
    def accounts(self) -> tuple[Account, ...]:
        """The budgets that pay."""
        above = () if self._above is None else self._above.accounts
        return (*above, self)


class RecordedAnswers:
    """The answers of an episode, by the place of their call.

    Args:
        stored: the episode, with its texts.
    """

    def __init__(self, stored: StoredEpisode) -> None:
        self._answers: dict[tuple[Place, str, str], Completion] = {}
        for number in range(len(stored.rounds)):
            for index, result in enumerate(results_of(stored, number)):
                for call in result.calls:
                    if call.completion is not None and call.error is None:
                        sent = request_hash(call.messages, _NOTHING)
                        self._answers[(number, index), call.worker, sent] = call.completion

    def find(self, place: Place, worker: str, messages: Sequence[Message]) -> Completion | None:
        """Return the answer of a worker at a place to these messages; None: there is none."""
        return self._answers.get((place, worker, request_hash(messages, _NOTHING)))

    def over(self, pool: WorkerPool, sources: Mapping[Place, Place] | None) -> WorkerPool:
        """Return the pool answering from the record.

        Args:
            pool: the workers.
            sources: the place in the record, by the place of a call; None: it is the same.
        """

        def recall(
            name: str, messages: Sequence[Message], _: Sampling, call: CallContext
        ) -> Completion | None:
            place: Place | None = (call.round, call.step)
            if sources is not None:
                place = sources.get((call.round, call.step))
            return None if place is None else self.find(place, name, messages)

        workers: dict[int, Worker] = {}
        for ordinal, worker in pool:
            workers[ordinal] = worker.recalling(partial(recall, worker.name))
        return WorkerPool(workers, default_worker=pool.names[pool.default_worker])


def own_way(change: EpisodeChange, budget: Budget, conductor: Conductor) -> Ask:
    """Return a function that asks again, in place of the Conductor's ``ask``.

    Raises:
        ConfigError: a worker is not in the pool.
        WorkflowError: the steps are no valid workflow.
    """
    recorded = RecordedAnswers(change.stored)
    if change.round is None:
        pool = recorded.over(conductor.pool, None)
        play = replace(conductor, pool=pool).ask
    else:
        sources: dict[Place, Place] = {}
        for index, step in enumerate(change.steps):
            if not step.anew:
                sources[0, index] = (change.round, step.source)
        pool = recorded.over(conductor.pool, sources)
        play = partial(_play, pool, workflow_of(change, conductor), _previous(change))

    async def ask(
        question: Question, *, context: CallContext, budget: Budget, on_event: OnEvent
    ) -> Episode:
        own = NewCallsBudget(limits, context.budget)
        # Another sample: a worker that draws its answers draws anew.
        context = replace(context, budget=own, sample=change.stored.sample + 1)
        return await play(question, budget=budget, on_event=on_event, context=context)

    limits = budget
    return ask


async def _play(
    pool: WorkerPool,
    workflow: Workflow,
    previous: str | None,
    question: Question,
    *,
    budget: Budget,
    on_event: OnEvent,
    context: CallContext,
) -> Episode:
    """Play one workflow, as an episode of one round."""
    live = LiveEpisode(pool, question, context=context, on_event=on_event)
    async with live.play(budget):
        live.answer = await live.answer_by(workflow, previous=previous)
    return live.episode


def workflow_of(change: EpisodeChange, conductor: Conductor) -> Workflow:
    """Return the workflow of changed steps.

    Raises:
        ConfigError: a worker is not in the pool.
        WorkflowError: it is not valid.
    """
    pool = conductor.pool
    steps = [Step(pool.ordinal_of(one.worker), one.subtask, one.access) for one in change.steps]
    workflow = Workflow(tuple(steps))
    is_question_alone = len(steps) == 1 and not steps[0].subtask
    if not is_question_alone:
        validate_workflow(workflow, pool.ordinals, max_steps=conductor.max_steps)
    return workflow


def _previous(change: EpisodeChange) -> str | None:
    """Return the answer before the round, which steps that see all are shown."""
    answers = [played.answer for played in change.stored.rounds[: change.round]]
    return next((answer for answer in reversed(answers) if answer is not None), None)


def words_of(change: EpisodeChange) -> str:
    """Return what differs, without texts."""
    if change.round is None:
        return "planned anew"
    before = results_of(change.stored, change.round)
    kept = {step.source for step in change.steps}
    changes = [f"step {place} dropped" for place in range(len(before)) if place not in kept]
    for step in change.steps:
        old = before[step.source].step
        what = f"step {step.source}"
        if step.worker != change.stored.workers.get(old.worker):
            changes.append(f"{what} by {step.worker}")
        if step.subtask != old.subtask:
            changes.append(f"{what} with another subtask")
        if step.anew:
            changes.append(f"{what} once more")
    return f"round {change.round + 1}: {', '.join(changes) or 'unchanged'}"


# ── prices ────────────────────────────────────────────────────────────────────────────────────────
def costs_of(change: EpisodeChange, conductor: Conductor) -> list[CallPrice]:
    """Return the price of a change.

    Raises:
        ConfigError: a worker is not in the pool.
        WorkflowError: the steps are no valid workflow.
    """
    if change.round is None:
        return _costs_of_planning(change.stored, conductor)
    return _costs_of_steps(change, change.round, conductor)


def _costs_of_steps(change: EpisodeChange, number: int, conductor: Conductor) -> list[CallPrice]:
    """Return the price of each step.

    A step that is sent the answer of a step that is called is called, too. What it reads is guessed
    from the answers that are recorded.
    """
    workflow = workflow_of(change, conductor)
    recorded = RecordedAnswers(change.stored)
    before = results_of(change.stored, number)
    opening = join_turns(check_question(change.stored.question))
    completions = [before[step.source].completion for step in change.steps]
    texts = ["" if completion is None else completion.text for completion in completions]
    costs: list[CallPrice] = []
    called: set[int] = set()
    for index, step in enumerate(change.steps):
        is_last = index == len(change.steps) - 1
        turns = opening if is_last else tools_as_text(opening)
        messages = step_context(workflow, index, turns, texts, _previous(change))
        is_known = recorded.find((number, step.source), step.worker, messages) is not None
        if is_known and not step.anew and called.isdisjoint(workflow.visible(index)):
            costs.append(CallPrice(step.worker, f"step {index}", is_recorded=True))
            continue
        called.add(index)
        written = before[step.source].usage.output_tokens or _mean_written(before)
        costs.append(_cost(conductor.pool[step.worker], f"step {index}", messages, written))
    return costs


def _costs_of_planning(stored: StoredEpisode, conductor: Conductor) -> list[CallPrice]:
    """Return the price of planning and of the steps, if they go as before."""
    ledger = draw_up(stored)
    question = check_question(stored.question)
    planning = [call for played in stored.rounds for call in played.calls]
    prompt = planning[0].messages if planning else question
    planner = _cost(conductor.planner, "planning", prompt, ledger.conductor.output_tokens)
    about: Decimal | None = ledger.workers.dollars
    most: Decimal | None = Decimal(0)
    for _, worker in conductor.pool:
        cost = _cost(worker, "", question, 0)
        if cost.most is None or most is None:
            about = most = None
        else:
            most = max(most, cost.most)
    return [planner, CallPrice("workers", "steps, as before", about=about, most=most)]


def _cost(worker: Worker, what: str, messages: Sequence[Message], written: int) -> CallPrice:
    """Return the price of a call that writes about ``written`` tokens."""
    price = worker.price
    if price is None and worker.resolved.prices_itself and not worker.resolved.nests:
        price = _FREE
    if price is None:
        return CallPrice(worker.name, what, about=None, most=None)
    read, _ = guess_tokens(messages, worker.sampling)
    about = price.dollars(Usage(read, 0, written))
    most = worker.most(messages, CallContext()).dollars
    return CallPrice(worker.name, what, about=about, most=max(about, most))


def _mean_written(results: Sequence[StepResult]) -> int:
    """Return the mean of the tokens that steps wrote; 0: none has."""
    written = [one.usage.output_tokens for one in results if one.usage.output_tokens]
    return sum(written) // len(written) if written else 0


def suggest_budget(costs: Sequence[CallPrice]) -> Budget:
    """Return a budget with room for calls: what they reserve, or twice what is likely.

    Where a price is unknown, it limits the number of calls.
    """
    called = [cost for cost in costs if not cost.is_recorded]
    dollars = Decimal(0)
    for cost in called:
        if cost.about is None or cost.most is None:
            return Budget(calls=4 * len(called))
        dollars += max(cost.most, 2 * cost.about)
    if not dollars:
        return Budget(dollars=dollars)
    step = Decimal(1).scaleb(dollars.adjusted() - 1)  # two digits are kept
    return Budget(dollars=(dollars / step).to_integral_value("ROUND_CEILING") * step)
