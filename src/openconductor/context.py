"""The turns that a step of a workflow is shown, and what counts as its answer. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from openconductor.errors import EmptyResponse, Refused, WorkerError
from openconductor.types import Completion, Message, Workflow


def join_turns(turns: Iterable[Message]) -> tuple[Message, ...]:
    r"""Join neighbouring turns of one role, because many chat templates reject repeats.

    A blank line stands between them. Results of tools stay apart, because each answers a call of
    its own.

    >>> join_turns([Message("user", "What is 6 * 7?"), Message("user", "Answer with a number.")])
    (Message(role='user', content='What is 6 * 7?\n\nAnswer with a number.', parts=()),)
    """
    groups: list[list[Message]] = []
    for turn in turns:
        if groups and groups[-1][0].role == turn.role != "tool":
            groups[-1].append(turn)
        else:
            groups.append([turn])
    return tuple(merge_turns(group) for group in groups)


def merge_turns(turns: Sequence[Message]) -> Message:
    """Merge turns of one role into one, with the calls of tools of all of them in one part."""
    if len(turns) == 1:
        return turns[0]
    merged = [part for turn in turns for part in turn.parts if "tool_calls" not in part]
    calls = [call for turn in turns for call in turn.tool_calls]
    if calls:
        merged.append({"tool_calls": calls})
    text = "\n\n".join(turn.content for turn in turns if turn.content)
    return Message(turns[0].role, text, tuple(merged))


def step_context(
    workflow: Workflow,
    index: int,
    opening: Sequence[Message],
    responses: Sequence[str],
    previous: str | None = None,
    *,
    begun: bool = False,
) -> tuple[Message, ...]:
    """Return the turns that a step is sent: the question, the steps that it sees, its own subtask.

    Args:
        workflow: the workflow.
        index: the step, 0-based.
        opening: the question and the chat before it, with joined turns (``join_turns``).
        responses: one text a step; only those of visible steps are read.
        previous: the previous round's final response, shown right after the question to a step
            whose access is ``"all"``.
        begun: whether the opening ends with the beginning of the answer. The last step is sent it
            at the end, so that its worker goes on from there.
    """
    step = workflow.steps[index]
    turns = list(opening)
    beginning: list[Message] = []
    if begun and index == len(workflow) - 1:
        beginning.append(turns.pop())
    if previous is not None and step.access == "all":
        turns.append(Message("assistant", previous))
    for seen in workflow.visible(index):
        turns.append(Message("user", workflow.steps[seen].subtask))
        turns.append(Message("assistant", responses[seen]))
    if step.subtask:
        turns.append(Message("user", step.subtask))
    return join_turns([*turns, *beginning])


def find_fault(completion: Completion) -> WorkerError | None:
    """Return why a completion is not an answer: filtered (Refused), blank (EmptyResponse), or None.

    A text that was cut at its token limit is an answer. One that was cut before any text came, all
    of it reasoning, is an EmptyResponse that is not retryable. The reward grades it, because the
    plan chose that worker.
    """
    if completion.finish_reason == "content_filter":
        return Refused("the answer was stopped by a content filter, expected an answer")
    if completion.text and not completion.text.isspace():
        return None
    if completion.finish_reason == "length":
        message = "the token limit was reached before any text, expected an answer"
        return EmptyResponse(message, retryable=False)
    return EmptyResponse("got a blank text, expected an answer", retryable=True)
