"""How every baseline plays: one workflow, made without a Conductor, becomes one Episode of one round.

In: what makes the workflow, a pool, a question. Out: the Episode, and the same events as the Conductor's, but for
``Planned``: nobody wrote a completion.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from openconductor.budget import check_price, open_meter, time_limit
from openconductor.context import open_context
from openconductor.emit import Emitter, asked, open_call
from openconductor.errors import OpenConductorError, WorkflowError
from openconductor.events import Answered, RoundEnded
from openconductor.executor import Execution, Setting
from openconductor.pool import WorkerPool
from openconductor.prompt import check_question, check_turns
from openconductor.protocols import OnEvent
from openconductor.types import Budget, Episode, Question, Round, Usage, Workflow


async def play(
    make: Callable[[], Workflow],
    pool: WorkerPool,
    question: Question,
    *,
    budget: Budget | None = None,
    on_event: OnEvent | None = None,
    sample: int = 0,
) -> Episode:
    """Answer a question with the workflow that ``make`` makes.

    Args:
        make: makes the workflow; it is executed as it is, so it must be valid over the pool (``validate_workflow``).
        pool: the workers.
        question: a text, or a chat whose last turn is the user's.
        budget: what the question may cost.
        on_event: gets the events in order; what it raises comes out unchanged.
        sample: tells repeats of the same question apart.

    Returns:
        The Episode; ``error`` is the WorkflowError that ``make`` raised or the WorkerError that ended the execution.

    Raises:
        ConfigError, AuthFailed, BudgetExceeded: nothing more can be done; ``.episode`` holds what had happened.
    """
    check_turns(question)
    clock = asyncio.get_running_loop().time
    origin = clock()
    call = open_call(origin=origin, sample=sample)
    emit = Emitter(on_event) if on_event is not None else None
    execution: Execution | None = None

    def close(error: OpenConductorError | None) -> Episode:
        transcript = execution.transcript() if execution is not None else None
        if error is None and transcript is not None:
            error = transcript.error
        outcome = Round(None, execution.workflow if execution is not None else None, transcript, error)
        answer = transcript.answer if transcript is not None and error is None else None
        usage = transcript.usage if transcript is not None else Usage()
        seconds = clock() - origin
        if emit is not None and emit.failure is None:
            emit(RoundEnded(call.episode, 0, seconds, outcome))
        episode = Episode(question, (outcome,), answer, error, usage, seconds, call.episode)
        if emit is not None and emit.failure is None:
            emit(Answered(call.episode, 0, seconds, episode))
        return episode

    async def settled(episode: Episode) -> Episode:
        if emit is not None:
            await emit.settle()
        return episode

    try:
        if emit is not None:
            emit(asked(call, question))
        check_question(question)
        meter = open_meter(budget, now=origin)
        call = replace(call, deadline=meter.deadline if meter is not None else None)
        workflow = make()
        for worker in {step.worker for step in workflow}:
            check_price(meter, pool[worker])
        execution = Execution(workflow, Setting(pool, call, origin, meter, emit), open_context(question))
        async with time_limit(meter):
            await execution.run()
    except OpenConductorError as error:
        from_sink = emit is not None and emit.failure is not None
        episode = close(error)
        if isinstance(error, WorkflowError) and not from_sink:
            return await settled(episode)
        error.episode = episode
        await settled(episode)
        raise
    return await settled(close(None))
