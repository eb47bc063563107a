"""The picture of an episode, live or as it is stored.

It shows the Conductor's text and, below it, the steps: the worker of each, the steps that it sees,
its state or answer, and its cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.text import Text
from rich.tree import Tree

from openconductor.cli.bill import cost, dollars_text, seconds_text, tokens_text
from openconductor.cli.console import counted, labelled, printable
from openconductor.events import (
    Answered,
    CallEnded,
    Chosen,
    Event,
    Planned,
    RoundEnded,
    StepEnded,
    StepStarted,
    StepText,
)
from openconductor.types import Completion, Episode, Question, Round, Step, StepResult, text_of

COLOURS = (
    "cyan",
    "magenta",
    "green",
    "yellow",
    "blue",
    "bright_red",
    "bright_cyan",
    "bright_magenta",
)
"""The colours of the workers, by ordinal."""

SHOWN_LINES = 14  # of the Conductor's text; the lists stand at its end
SHOWN_CHARACTERS = 4000  # of a text that is shown in one line
TAIL = 400  # characters of a running step's text that are shown

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


@dataclass(slots=True)
class StepView:
    """A step as far as it is known; ``failure`` is the outcome of the last failed attempt."""

    step: Step
    worker: int
    text: str = ""
    started: bool = False
    result: StepResult | None = None
    failure: str = ""


@dataclass(slots=True)
class RoundView:
    """A round as far as it is known; ``failure`` is that of the Conductor's last failed attempt."""

    planned: Planned | None = None
    chosen: Chosen | None = None
    steps: list[StepView] = field(default_factory=list[StepView])
    outcome: Round | None = None
    failure: str = ""


@dataclass(slots=True)
class EpisodeView:
    """Takes the events of one episode as its ``on_event`` and draws what is known so far.

    Attributes:
        question: the question.
        names: the workers' names, by ordinal.
        expected: the right answer. The picture then ends with the answer and a verdict. None:
            unknown.
        simulated: True if the workers' seconds are simulated, as the gym's are. The picture then
            ends with their sum instead of wall time.
        whole: True to draw all texts in full, however long they are.
        clock: seconds, for running steps.
    """

    question: Question
    names: Mapping[int, str]
    expected: str | None = None
    simulated: bool = False
    whole: bool = False
    clock: Callable[[], float] = time.monotonic
    rounds: list[RoundView] = field(default_factory=lambda: [RoundView()])
    episode: Episode | None = None

    @classmethod
    def of(cls, episode: Episode, names: Mapping[int, str], *, simulated: bool) -> EpisodeView:
        """Return the picture of an episode that has ended, with all texts in full."""
        rounds = [_view_round(played) for played in episode.rounds]
        view = cls(episode.question, names, simulated=simulated, whole=True, rounds=rounds)
        view.episode = episode
        return view

    def __call__(self, event: Event) -> None:
        """Take an event in."""
        while len(self.rounds) <= event.round:
            self.rounds.append(RoundView())
        view = self.rounds[event.round]
        match event:
            case Planned():
                view.planned = event
                view.steps = [StepView(step, step.worker) for step in event.workflow or ()]
            case Chosen():
                view.chosen = event
                view.steps = [StepView(step, step.worker) for step in event.workflow]
            case StepStarted():
                while len(view.steps) <= event.step:  # of a system that announces no workflow
                    view.steps.append(StepView(Step(event.worker, ""), event.worker))
                step = view.steps[event.step]
                step.worker = event.worker
                step.started = True
                step.text = ""
            case StepText():
                view.steps[event.step].text += event.text
            case StepEnded():
                step = view.steps[event.step]
                step.step = event.result.step
                step.worker = event.result.asked
                step.result = event.result
            case RoundEnded():
                view.outcome = event.outcome
            case Answered():
                self.episode = event.outcome
            case CallEnded() if event.call.error is not None:
                caller = view if event.step is None else view.steps[event.step]
                caller.failure = event.call.outcome
            case _:
                pass

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw what is known."""
        yield labelled("Question", Text(printable(text_of(self.question))))
        for number, view in enumerate(list(self.rounds), start=1):
            name = "Conductor" if len(self.rounds) == 1 else f"Conductor, round {number}"
            yield Text()
            yield self._draw_round(name, view)
        if self.episode is not None:
            yield Text()
            yield from self._draw_end(self.episode)

    def _draw_round(self, name: str, view: RoundView) -> Tree:
        planned = view.planned
        if view.chosen is not None:
            name = "Without a plan" if view.chosen.rule == "default_worker" else "Direct"
        elif planned is None and view.steps:
            name = "Steps"  # of a system that does not plan
        head = Text.assemble((name, "bold"), "  ")
        tree = Tree(head, guide_style="dim")
        if view.chosen is not None:
            head.append("one worker answers alone", "yellow")
        elif planned is not None:
            head.append_text(_planned_text(planned, view))
            head.append(f"  {cost(planned.completion.usage)}", "dim")
            tree.add(_quote(planned.completion, whole=self.whole))
        elif not view.steps:
            head.append_text(self._unplanned_text(view))
        for index, step in enumerate(view.steps):
            tree.add(self._draw_step(index, step, ended=view.outcome is not None))
        return tree

    def _draw_step(self, index: int, view: StepView, *, ended: bool) -> Text:
        """Draw a step: in two lines, which are cut at the edge of the terminal, or in full."""
        text = Text(f"{index}  ")
        if not self.whole:
            text = Text(f"{index}  ", no_wrap=True, overflow="ellipsis")
        text.append_text(self._worker_text(view))
        seen = view.step.visible(index)
        if seen:
            text.append(f"  sees {', '.join(map(str, seen))}", "dim")
        text.append(f"  {self._fit(view.step.subtask)}\n")
        if view.result is not None:
            text.append(f"{cost(view.result.usage)}  ", "dim")
        return text.append_text(self._response(view, ended=ended))

    def _unplanned_text(self, view: RoundView) -> Text:
        """Say what the Conductor does as long as it has written nothing, or why it failed."""
        if view.outcome is not None and view.outcome.error is not None:
            return Text(f"✗ {printable(str(view.outcome.error))}", style="red")
        text = _failure_text(view.failure)
        if self.episode is None:
            text.append(f"{self._spinner()} writes a workflow", "dim")
        return text

    def _worker_text(self, view: StepView) -> Text:
        name = printable(self.names.get(view.worker, f"worker {view.worker}"))
        if view.worker != view.step.worker:
            name += " (instead)"
        return Text(name, style=f"bold {colour_of(view.worker)}")

    def _response(self, view: StepView, *, ended: bool) -> Text:
        """Return the step's answer or error, or what it does."""
        failure = _failure_text(view.failure)
        if view.result is not None:
            completion = view.result.completion
            if completion is None:
                return Text(f"✗ {self._fit(str(view.result.error))}", style="red")
            return Text.assemble(failure, ("→ ", "dim"), self._fit(completion.text))
        if ended:
            return Text("cancelled" if view.started else "not reached", style="dim")
        if not view.started:
            return Text("waits", style="dim")
        text = _one_line(view.text[-TAIL:]) or "works"
        return Text.assemble(failure, (f"{self._spinner()} {text}", "dim"))

    def _fit(self, text: str) -> str:
        """Return a text as the picture shows it: in one line, or in full."""
        return printable(text).strip() if self.whole else _one_line(text)

    def _spinner(self) -> str:
        turn = int(self.clock() * 12)
        return SPINNER[turn % len(SPINNER)]

    def _draw_end(self, episode: Episode) -> Iterator[RenderableType]:
        if episode.answer is not None and self.expected is not None:
            yield labelled("Answer", Text(printable(episode.answer), style="bold"))
            if episode.answer.split() == self.expected.split():
                verdict = Text("✓ right", style="bold green")
            else:
                verdict = Text(f"✗ wrong: expected {printable(self.expected)}", style="bold red")
            yield labelled("", verdict)
        if episode.error is not None:
            yield labelled("Error", Text(printable(str(episode.error)), style="red"))
        steps = sum(len(played.workflow or ()) for played in episode.rounds)
        parts = [counted(steps, "step"), tokens_text(episode.usage)]
        parts += [dollars_text(episode.usage, zero=True), self._time_text(episode)]
        costs = " · ".join(filter(None, parts))
        yield labelled("Cost", Text(costs, style="dim"))

    def _time_text(self, episode: Episode) -> str:
        if not self.simulated:
            return f"{seconds_text(episode.seconds)} in all"
        steps = [step for view in self.rounds for step in view.steps]
        seconds = sum(step.result.usage.seconds for step in steps if step.result is not None)
        return f"{seconds_text(seconds)} of simulated work"


def colour_of(ordinal: int) -> str:
    """Return the colour of a worker."""
    return COLOURS[ordinal % len(COLOURS)]


@contextmanager
def live_view(view: EpisodeView, console: Console) -> Generator[None]:
    """Show the picture while the block runs: live on a terminal, anywhere else once at the end."""
    if not console.is_interactive or console.is_dumb_terminal:
        yield
        console.print(view)
        return
    with Live(view, console=console, refresh_per_second=12):
        yield


def _planned_text(planned: Planned, view: RoundView) -> Text:
    """Say what the Conductor's text means."""
    text = _failure_text(view.failure)
    if planned.workflow is None:
        return text.append(f"✗ no workflow: {printable(str(planned.error))}", "red")
    if not planned.workflow:
        return text.append("✓ accepts the answer", "green")
    return text.append(f"✓ a workflow of {counted(len(planned.workflow), 'step')}", "green")


def _view_round(played: Round) -> RoundView:
    """Return a round that has ended as the picture holds it."""
    view = RoundView(outcome=played)
    workflow = played.workflow
    if played.rule is not None and workflow is not None:
        view.chosen = Chosen("", 0, 0.0, played.rule, workflow)
    elif played.completion is not None:
        view.planned = Planned("", 0, 0.0, played.completion, workflow, played.error)
    if played.transcript is not None:
        for result in played.transcript.results:
            step = StepView(result.step, result.asked, started=result.started is not None)
            if result.completion is not None or result.error is not None:
                step.result = result
            view.steps.append(step)
    return view


def _quote(completion: Completion, *, whole: bool) -> Text:
    """Return a completion; of a long one only the end, or the ``whole`` one."""
    lines = printable(completion.text).strip("\n").expandtabs(4).split("\n")
    if len(lines) > SHOWN_LINES and not whole:
        lines = ["…", *lines[1 - SHOWN_LINES :]]
    return Text("\n".join(lines), style="italic")


def _failure_text(failure: str) -> Text:
    """Name the last failed attempt; all of them are on the bill."""
    return Text(f"after {failure}: " if failure else "", style="yellow")


def _one_line(text: str) -> str:
    return " ".join(printable(text[:SHOWN_CHARACTERS]).split())
