"""Run a workflow: every step starts as soon as the steps that it sees have ended.

In: a Workflow, a WorkerPool, the question. Out: a Transcript with one result a step, and events on the way.

How steps run and fail: ``execution``. Errors whose fate is *stop* are raised; every other failure of a worker stands
in the transcript.

Not covered: retries and rate limits (a worker's wrappers), parsing (``parser``), rounds (``conductor``), and undoing: a
call that was sent is paid for, and a sync function that runs in a thread ends in its own time after a cancellation.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from openconductor.budget import check_price, open_meter, time_limit
from openconductor.context import open_context
from openconductor.emit import Emitter, asked, open_call
from openconductor.errors import (
    OpenConductorError,
)
from openconductor.events import Answered, RoundEnded
from openconductor.execution import Execution, Setting
from openconductor.parser import validate_workflow
from openconductor.pool import WorkerPool
from openconductor.prompt import check_question
from openconductor.protocols import CallContext, OnEvent
from openconductor.types import (
    Budget,
    Episode,
    Question,
    Round,
    Transcript,
    Workflow,
)

_FIRST_CALL = CallContext()


async def execute(
    workflow: Workflow,
    pool: WorkerPool,
    question: Question,
    *,
    previous: str | None = None,
    budget: Budget | None = None,
    on_event: OnEvent | None = None,
    call: CallContext = _FIRST_CALL,
    fallback: bool = False,
    max_steps: int | None = None,
) -> Transcript:
    """Execute a workflow, its independent steps at the same time.

    Args:
        workflow: the plan, from the parser or by hand.
        pool: the workers, by ordinal.
        question: a text, or a chat whose last turn is the user's.
        previous: the previous round's final response, shown to steps whose access is ``"all"``.
        budget: what the execution may cost; exceeding it cancels what runs.
        on_event: gets every event in order. It is trusted: an exception that it raises cancels what runs and comes out
            of here unchanged, and nothing more is sent to it.
        call: episode, round, sample and depth for the calls. Without an episode, this is one: it is named here, and
            its beginning and end are events, too.
        fallback: whether a step whose worker failed goes to the next worker that it has not tried (the result's
            ``worker`` says which answered). Off where credit matters: in training and evaluation.
        max_steps: the most steps that the workflow may have; None is no limit.

    Returns:
        The transcript: its ``answer`` is the last step's response; ``error`` the first failure, where there is one.

    Raises:
        WorkflowError: the workflow is not valid over this pool.
        ConfigError: the question is no question, or a dollar budget meets a worker without a price.
        BudgetExceeded, AuthFailed: the execution had to stop; ``.episode`` holds what had happened.
    """
    validate_workflow(workflow, pool.ordinals, max_steps=max_steps)
    check_question(question)
    opening = open_context(question)
    origin = asyncio.get_running_loop().time()
    meter = open_meter(budget, now=origin)
    for ordinal in pool.ordinals if fallback else {step.worker for step in workflow}:
        check_price(meter, pool[ordinal])
    whole = not call.episode
    call = open_call(origin=origin, sample=call.sample) if whole else replace(call, origin=origin)
    emit = Emitter(on_event) if on_event else None
    execution = Execution(workflow, Setting(pool, call, origin, meter, emit, fallback), opening, previous)

    async def close(error: OpenConductorError | None) -> Episode:
        transcript = execution.transcript()
        error = error or transcript.error
        outcome = Round(None, workflow, transcript, error)
        seconds = asyncio.get_running_loop().time() - origin
        answer = transcript.answer if error is None else None
        episode = Episode(question, (outcome,), answer, error, transcript.usage, seconds, call.episode)
        if emit is not None and whole and emit.failure is None:
            emit(RoundEnded(call.episode, call.round, seconds, outcome))
            emit(Answered(call.episode, call.round, seconds, episode))
            await emit.settle()
        return episode

    try:
        if emit is not None and whole:
            emit(asked(call, question))
        async with time_limit(meter):
            await execution.run()
    except OpenConductorError as error:
        error.episode = await close(error)
        if emit is not None:
            emit.check()  # what it raised need not be this error: it can fail while others are closed
        raise
    if emit is not None and whole:
        await close(None)
    return execution.transcript()
