"""The context of a step: what its worker is shown, and nothing else.

In: the question, the workflow, the responses until now. Out: the turns that one step is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from openconductor.types import Message, Question, Workflow


def open_context(question: Question) -> tuple[Message, ...]:
    """The turns that open every step's context: the question and the chat before it."""
    return join_turns((Message("user", question),) if isinstance(question, str) else question)


def join_turns(turns: Iterable[Message]) -> tuple[Message, ...]:
    r"""Join neighbouring turns of one role by a blank line, for many chat templates refuse repeats.

    Results of tools stay apart: each answers a call of its own.

    >>> join_turns([Message("user", "What is 6 * 7?"), Message("user", "Answer with a number.")])
    (Message(role='user', content='What is 6 * 7?\n\nAnswer with a number.', parts=()),)
    """
    joined: list[Message] = []
    for turn in turns:
        last = joined[-1] if joined else None
        if last is None or last.role != turn.role or turn.role == "tool":
            joined.append(turn)
            continue
        content = f"{last.content}\n\n{turn.content}" if last.content and turn.content else last.content or turn.content
        joined[-1] = Message(turn.role, content, last.parts + turn.parts)
    return tuple(joined)


def step_context(
    workflow: Workflow,
    index: int,
    opening: Sequence[Message],
    responses: Sequence[str],
    previous: str | None = None,
) -> tuple[Message, ...]:
    """The turns that step ``index`` is sent: the question, what its access list grants, last its own subtask.

    Args:
        workflow: the workflow.
        index: the step, 0-based.
        opening: the turns of ``open_context``.
        responses: one text a step; only those of visible steps are read.
        previous: the previous round's final response; seen under ``"all"``, right after the question.
    """
    steps = workflow.steps
    turns = list(opening)
    if previous is not None and steps[index].access == "all":
        turns.append(Message("assistant", previous))
    for seen in workflow.visible(index):
        turns.append(Message("user", steps[seen].subtask))
        turns.append(Message("assistant", responses[seen]))
    turns.append(Message("user", steps[index].subtask))
    return join_turns(turns)
