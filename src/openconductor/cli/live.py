"""The live picture of an episode.

It shows the Conductor's text and, below it, the steps: the worker of each, the steps that it sees,
when it runs, its answer and its cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from openconductor.cli.bill import cost, dollars_text, seconds_text, tokens_text
from openconductor.cli.console import counted, labelled, printable
from openconductor.events import (
    Answered,
    CallEnded,
    Event,
    Planned,
    RoundEnded,
    StepEnded,
    StepStarted,
    StepText,
)
from openconductor.pool import WorkerPool
from openconductor.types import Completion, Episode, Question, Round, Step, StepResult, Usage

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
NARROW = 72  # columns below which bars and tokens are left out
TAIL = 400  # characters of a running step's text that are shown

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


@dataclass(slots=True)
class StepView:
    """A step as far as it is known; ``failures`` are the outcomes of failed attempts."""

    step: Step
    worker: int
    text: str = ""
    started: float | None = None
    ended: float | None = None
    result: StepResult | None = None
    failures: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class RoundView:
    """A round as far as it is known; ``failures`` are outcomes of the Conductor's own attempts."""

    planned: Planned | None = None
    steps: list[StepView] = field(default_factory=list[StepView])
    outcome: Round | None = None
    failures: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class EpisodeView:
    """Takes the events of one episode as its ``on_event`` and draws what is known so far.

    Attributes:
        question: the question.
        pool: names the workers.
        expected: the right answer. The picture then ends with the answer and a verdict. None:
            unknown.
        simulated: True if the workers' seconds are simulated, as the gym's are. The picture then
            ends with their sum instead of wall time.
        clock: seconds, for running steps.
    """

    question: Question
    pool: WorkerPool
    expected: str | None = None
    simulated: bool = False
    clock: Callable[[], float] = time.monotonic
    rounds: list[RoundView] = field(default_factory=lambda: [RoundView()])
    episode: Episode | None = None
    origin: float = field(init=False)

    def __post_init__(self) -> None:
        self.origin = self.clock()

    def __call__(self, event: Event) -> None:
        """Take an event in."""
        while len(self.rounds) <= event.round:
            self.rounds.append(RoundView())
        view = self.rounds[event.round]
        match event:
            case Planned():
                view.planned = event
                view.steps = [StepView(step, step.worker) for step in event.workflow or ()]
            case StepStarted():
                step = view.steps[event.step]
                step.worker = event.worker
                step.started = event.at
                step.text = ""
            case StepText():
                view.steps[event.step].text += event.text
            case StepEnded():
                _end_step(view.steps[event.step], event)
            case RoundEnded():
                view.outcome = event.outcome
                for step in view.steps:
                    if step.ended is None:
                        step.ended = event.at
            case Answered():
                self.episode = event.outcome
            case CallEnded() if event.call.error is not None:
                caller = view if event.step is None else view.steps[event.step]
                caller.failures.append(event.call.outcome)
            case _:
                pass

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw what is known."""
        question = self.question if isinstance(self.question, str) else self.question[-1].content
        yield labelled("Question", Text(printable(question)))
        for number, view in enumerate(list(self.rounds), start=1):
            name = "Conductor" if len(self.rounds) == 1 else f"Conductor, round {number}"
            yield Text()
            yield from self._draw_round(name, view, console, options.max_width)
        if self.episode is not None:
            yield Text()
            yield from self._draw_end(self.episode)

    def _draw_round(
        self, name: str, view: RoundView, console: Console, width: int
    ) -> Iterator[RenderableType]:
        planned = view.planned
        head = Table.grid(padding=(0, 2), expand=True)
        head.add_column(no_wrap=True, style="bold")
        head.add_column(ratio=1, no_wrap=True)
        head.add_column(justify="right", no_wrap=True, style="dim")
        if planned is None:
            head.add_row(name, self._unplanned_text(view))
            yield head
            return
        head.add_row(name, _planned_text(planned, view), cost(planned.completion.usage))
        yield head
        gutter = "│ " if view.steps else "  "
        yield from _quote(planned.completion, gutter, console, width)
        if view.steps:
            yield Text(gutter, style="dim")
            yield self._draw_steps(view.steps, planned.at, width)

    def _unplanned_text(self, view: RoundView) -> Text:
        """Say what the Conductor does as long as it has written nothing, or why it failed."""
        if view.outcome is not None and view.outcome.error is not None:
            return Text(f"✗ {printable(str(view.outcome.error))}", style="red")
        text = _failures_text(view.failures)
        if self.episode is None:
            text.append(f"{self._spinner()} writes a workflow", "dim")
        return text

    def _draw_steps(self, steps: Sequence[StepView], begin: float, width: int) -> Table:
        """Draw two lines a step, in a narrow room without bars and tokens."""
        wide = width >= NARROW
        grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True, max_width=20, overflow="ellipsis")
        grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        if wide:
            grid.add_column(no_wrap=True, justify="right")
        # As wide as a price, so that the picture does not jump.
        grid.add_column(no_wrap=True, justify="right", min_width=9)
        axis = _Axis(begin, self._end_of(steps), cells=28 if width >= 100 else 18)
        for index, view in enumerate(steps):
            branch, line = ("└─ ", "") if index == len(steps) - 1 else ("├─ ", "│ ")
            usage = Usage() if view.result is None else view.result.usage
            seen = ", ".join(str(place) for place in view.step.visible(index))
            upper = [
                Text.assemble((branch, "dim"), str(index)),
                self._worker_text(view),
                Text(_one_line(view.step.subtask)),
            ]
            lower = [
                Text(line, style="dim"),
                Text(f"sees {seen}" if seen else "", style="dim"),
                self._response(view),
            ]
            if wide:
                upper.append(axis.bar(view))
                lower.append(Text(tokens_text(usage), style="dim"))
            upper.append(Text("" if view.result is None else seconds_text(usage.seconds)))
            lower.append(Text(dollars_text(usage), style="dim"))
            grid.add_row(*upper)
            grid.add_row(*lower)
        return grid

    def _end_of(self, steps: Sequence[StepView]) -> float:
        """Return the right end of the time axis: the last step's end, or the present."""
        end = max(step.ended or 0.0 for step in steps)
        if any(step.started is not None and step.ended is None for step in steps):
            end = max(end, self.clock() - self.origin)
        return end

    def _worker_text(self, view: StepView) -> Text:
        name = printable(self.pool[view.worker].name)
        if view.worker != view.step.worker:
            name += " (instead)"
        return Text(name, style=f"bold {colour_of(view.worker)}")

    def _response(self, view: StepView) -> Text:
        """Return the step's answer or error, or what it does."""
        if view.result is not None:
            completion = view.result.completion
            if completion is not None:
                answer = _one_line(completion.text)
                return Text.assemble(_failures_text(view.failures), ("→ ", "dim"), answer)
            error = f"✗ {_one_line(str(view.result.error))}"
            return Text.assemble(_failures_text(view.failures[:-1]), (error, "red"))
        if view.ended is not None:
            return Text("not reached" if view.started is None else "cancelled", style="dim")
        if view.started is None:
            return Text("waits", style="dim")
        text = _one_line(view.text[-TAIL:]) or "works"
        return Text.assemble(_failures_text(view.failures), (f"{self._spinner()} {text}", "dim"))

    def _spinner(self) -> str:
        return SPINNER[int(self.clock() * 12) % len(SPINNER)]

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
        yield labelled("Cost", Text(" · ".join(part for part in parts if part), style="dim"))

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


@dataclass(frozen=True, slots=True)
class _Axis:
    """The time axis of a round; times are seconds since the episode began."""

    begin: float
    end: float
    cells: int

    def bar(self, view: StepView) -> Text:
        """Draw when a step ran."""
        if view.started is None or self.end <= self.begin:
            return Text("─" * self.cells, style="dim")
        ended = self.end if view.ended is None else view.ended
        first = min(self.cells - 1, max(0, int(self._cell(view.started))))
        last = min(self.cells, max(first + 1, round(self._cell(ended))))
        return Text.assemble(
            ("─" * first, "dim"),
            ("━" * (last - first), colour_of(view.worker)),
            ("─" * (self.cells - last), "dim"),
        )

    def _cell(self, at: float) -> float:
        return (at - self.begin) * (self.cells / (self.end - self.begin))


def _end_step(step: StepView, event: StepEnded) -> None:
    result = event.result
    step.worker = result.asked
    if result.started is not None:
        step.started = result.started
    step.ended = event.at if result.ended is None else result.ended
    step.result = result


def _planned_text(planned: Planned, view: RoundView) -> Text:
    """Say what the Conductor's text means."""
    text = _failures_text(view.failures)
    if planned.workflow is None:
        return text.append(f"✗ no workflow: {printable(str(planned.error))}", "red")
    if not planned.workflow:
        return text.append("✓ accepts the answer", "green")
    return text.append(f"✓ a workflow of {counted(len(planned.workflow), 'step')}", "green")


def _quote(completion: Completion, gutter: str, console: Console, width: int) -> Iterator[Text]:
    """Yield the lines of a completion behind the gutter; of a long one only the end."""
    text = Text(printable(completion.text).strip("\n").expandtabs(4), style="italic")
    lines = list(text.wrap(console, max(20, width - len(gutter)), overflow="fold"))
    if len(lines) > SHOWN_LINES:
        lines = [Text("…"), *lines[1 - SHOWN_LINES :]]
    for line in lines:
        yield Text.assemble((gutter, "dim"), line)


def _failures_text(failures: Sequence[str]) -> Text:
    """Name the failed attempts, of many the last two."""
    if not failures:
        return Text()
    if len(failures) > 3:
        failures = ["…", *failures[-2:]]
    return Text.assemble((f"after {', '.join(failures)}: ", "yellow"))


def _one_line(text: str) -> str:
    return " ".join(printable(text[:4000]).split())
