"""The reasoning that a client is shown: the plan, and then each step, as lines of text."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from openconductor.errors import WorkflowError
from openconductor.events import Chosen, Planned, StepEnded, StepStarted
from openconductor.serving.apis.wire import Reasoning
from openconductor.types import StepResult, Workflow

SHOWN = 200
"""Characters of a subtask that a summary shows."""


class Narration:
    """Describes the events of one episode.

    Args:
        names: the workers' names, by ordinal.
        level: how much is shown.
        emit: gets each new piece of text with the index of its part.

    Attributes:
        parts: a text for each plan and for each step after it.
    """

    def __init__(
        self, names: Mapping[int, str], level: Reasoning, emit: Callable[[int, str], None]
    ) -> None:
        self.parts: list[str] = []
        self._names = names
        self._level = level
        self._emit = emit

    def add_plan(self, event: Planned) -> None:
        """Describe a plan, or why the text is not one."""
        if self._level == "off":
            return
        if event.workflow is None:
            self._begin(f"The plan is not a workflow: {event.error}")
            return
        lines = [self._step_line(event.workflow, index) for index in range(len(event.workflow))]
        if self._level == "full":
            lines.insert(0, event.completion.text)
        self._begin("\n".join(lines) or "The answer stands.")

    def add_choice(self, event: Chosen) -> None:
        """Describe a workflow that a rule chose."""
        if self._level == "off":
            return
        names = ", ".join(self._names[step.worker] for step in event.workflow)
        text = f"Without a plan: {names} answers alone."
        if event.reason is not None and not isinstance(event.reason, WorkflowError):
            text = f"The Conductor does not plan: {event.reason}\n{text}"
        self._begin(text)

    def add_start(self, event: StepStarted) -> None:
        """Say that a worker has begun a step."""
        if self.parts:
            self._begin(f"Step {event.step + 1}: {self._names[event.worker]} is at work.")

    def add_end(self, event: StepEnded, *, is_answer: bool) -> None:
        """Say how a step ended; the full text, unless it is the answer."""
        if not self.parts:
            return
        result = event.result
        text = f"\nStep {event.step + 1}: {self._names[result.asked]} "
        if result.completion is None:
            text += f"failed ({getattr(result.error, 'outcome', 'cancelled')})."
        else:
            text += f"answered {_cost(result)}."
            if self._level == "full" and not is_answer:
                text += f"\n{result.completion.text}"
        self.parts[-1] += text
        self._emit(len(self.parts) - 1, text)

    def _begin(self, text: str) -> None:
        self.parts.append(text)
        self._emit(len(self.parts) - 1, text)

    def _step_line(self, workflow: Workflow, index: int) -> str:
        step = workflow.steps[index]
        line = f"{index + 1}. {self._names[step.worker]}"
        visible = ", ".join(str(earlier + 1) for earlier in workflow.visible(index))
        if visible:
            line += f" (sees {visible})"
        subtask = " ".join(step.subtask.split())
        if self._level != "full" and len(subtask) > SHOWN:
            subtask = f"{subtask[: SHOWN - 1]}…"
        return f"{line}: {subtask}"


def _cost(result: StepResult) -> str:
    seconds = (result.ended or 0.0) - (result.started or 0.0)
    used = result.usage
    dollars = f", ${used.dollars:f}" if used.dollars else ""
    return f"in {seconds:.1f} s ({used.tokens} tokens{dollars})"
