"""The picture of an episode: a tree that fills in while events arrive.

In: a question, a pool, and the events of ``events.py``. Out: something that Rich can print at any moment: the
Conductor's text as it wrote it, one branch a step with its worker, what it sees, when it ran, what it answered and what
that cost, and the sum.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from openconductor.cli.bill import cost, dollars_text, seconds_text, tokens_text
from openconductor.cli.console import printable
from openconductor.events import (
    Answered,
    Asked,
    CallEnded,
    Event,
    Planned,
    RoundEnded,
    StepEnded,
    StepStarted,
    StepText,
)
from openconductor.types import Completion, Episode, Question, Round, Step, StepResult, Usage

if TYPE_CHECKING:
    from openconductor.pool import WorkerPool

State = Literal["waiting", "running", "answered", "failed", "cancelled"]

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red", "bright_cyan", "bright_magenta")
"""A worker keeps its colour: that of its ordinal."""

SHOWN_LINES = 14  # of what the Conductor wrote; the lists come at its end
NARROW = 72  # columns below which answers need the room of the bars, and of the tokens below them
TAIL = 400  # characters of a running step's text that are looked at


@dataclass(frozen=True, slots=True)
class Signs:
    """The signs of the picture, for terminals with Unicode or without."""

    fork: str
    last: str
    line: str
    ran: str
    idle: str
    right: str
    wrong: str
    says: str
    dot: str
    turning: str


UNICODE = Signs("├─", "└─", "│ ", "━", "─", "✓", "✗", "→", "·", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
ASCII = Signs("+-", "+-", "| ", "=", ".", "ok", "x", "->", "-", "|/-\\")


def signs_for(options: ConsoleOptions) -> Signs:
    """The signs that a console can show."""
    return ASCII if options.ascii_only else UNICODE


@dataclass(slots=True)
class StepView:
    """What is known of a step."""

    step: Step
    worker: int
    state: State = "waiting"
    text: str = ""
    started: float | None = None
    ended: float | None = None
    usage: Usage = field(default_factory=Usage)
    failed: list[str] = field(default_factory=list[str])
    """The outcomes of the attempts that failed."""


@dataclass(slots=True)
class RoundView:
    """What is known of a round; ``began`` is in seconds since the episode began.

    ``failed`` holds the outcomes of the Conductor's own attempts that failed.
    """

    began: float
    failed: list[str] = field(default_factory=list[str])
    planned: Planned | None = None
    steps: list[StepView] = field(default_factory=list[StepView])
    outcome: Round | None = None


class EpisodeView:
    """Takes the events of one episode (it is an ``on_event``) and draws what is known so far.

    Args:
        question: what was asked.
        pool: names the workers.
        judge: says of an answer whether it is right and, if not, what would be; None: nobody knows.
        show_answer: whether the picture ends with the answer (not where it is printed beneath).
        simulated: whether the workers' seconds are simulated, as the gym's are: no wall time goes with them.
        clock: seconds, for what is running now.
    """

    def __init__(
        self,
        question: Question,
        pool: WorkerPool,
        *,
        judge: Callable[[str], tuple[bool, str]] | None = None,
        show_answer: bool = True,
        simulated: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._question = question
        self._pool = pool
        self._judge = judge
        self._show_answer = show_answer
        self._simulated = simulated
        self._clock = clock
        self._origin = clock()
        self._rounds: list[RoundView] = [RoundView(0.0)]
        self._episode: Episode | None = None

    def __call__(self, event: Event) -> None:
        """Take an event in."""
        while len(self._rounds) <= event.round:
            self._rounds.append(RoundView(event.at))
        now = self._rounds[event.round]
        match event:
            case Planned():
                now.steps = [StepView(step, step.worker) for step in event.workflow or ()]
                now.planned = event
            case StepStarted():
                step = now.steps[event.step]
                step.state, step.worker, step.started, step.text = "running", event.worker, event.at, ""
            case StepText():
                now.steps[event.step].text += event.text
            case StepEnded():
                self._end_step(now.steps[event.step], event.result, event.at)
            case RoundEnded():
                now.outcome = event.outcome
                for step in now.steps:
                    if step.state in ("waiting", "running"):
                        step.state, step.ended = "cancelled", event.at
            case Answered():
                self._episode = event.outcome
            case CallEnded():
                if event.call.error is not None:
                    view = now if event.step is None else now.steps[event.step]
                    view.failed.append(event.call.outcome)
            case Asked():
                pass

    def _end_step(self, view: StepView, result: StepResult, at: float) -> None:
        view.worker = view.worker if result.worker is None else result.worker
        view.ended = at if result.ended is None else result.ended
        view.started = result.started if result.started is not None else view.started
        view.usage = result.usage
        if result.completion is not None:
            view.state, view.text = "answered", result.completion.text
        else:
            view.state, view.text = "failed", str(result.error or "")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw what is known."""
        signs = signs_for(options)
        asked = self._question if isinstance(self._question, str) else self._question[-1].content
        yield labelled("Question", Text(printable(asked)))
        for index, now in enumerate(list(self._rounds)):
            yield Text()
            yield from self._draw_round(index, now, signs, console, options.max_width)
        if self._episode is not None:
            yield Text()
            yield from self._draw_end(self._episode, signs)

    # ── a round ──────────────────────────────────────────────────────────────────────────────────────────────────────
    def _draw_round(
        self, index: int, now: RoundView, signs: Signs, console: Console, width: int
    ) -> Iterator[RenderableType]:
        name = "Conductor" if len(self._rounds) == 1 else f"Conductor, round {index + 1}"
        head = Table.grid(padding=(0, 2), expand=True)
        head.add_column(no_wrap=True)
        head.add_column(ratio=1, no_wrap=True)
        head.add_column(justify="right", no_wrap=True)
        planned, error = now.planned, now.outcome.error if now.outcome is not None else None
        if planned is None:
            doing: RenderableType = Text()
            if error is not None:
                doing = Text(f"{signs.wrong} {printable(str(error))}", style="red")
            elif self._episode is None:
                writes = f"{self._turning(signs)} writes a workflow"
                doing = Text.assemble(_after(now.failed), (writes, "dim"))
            head.add_row(Text(name, style="bold"), doing, "")
            yield head
            return
        said = Text.assemble(_after(now.failed), _said(planned, signs))
        head.add_row(Text(name, style="bold"), said, Text(cost(planned.completion.usage), style="dim"))
        yield head
        gutter = signs.line if now.steps else "  "
        yield from _quoted(planned.completion, gutter, console, width)
        if now.steps:
            yield Text(gutter, style="dim")
            yield self._draw_steps(now, signs, width)

    def _draw_steps(self, now: RoundView, signs: Signs, width: int) -> Table:
        grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True, max_width=20, overflow="ellipsis")
        grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        wide = width >= NARROW
        if wide:
            grid.add_column(no_wrap=True, justify="right")
        grid.add_column(no_wrap=True, justify="right", min_width=9)  # the width of a price: the picture does not jump
        cells = 28 if width >= 100 else 18
        end = max((step.ended or 0.0 for step in now.steps), default=0.0)
        if any(step.state == "running" for step in now.steps):
            end = max(end, self._clock() - self._origin)
        begin = now.planned.at if now.planned is not None else now.began
        for index, view in enumerate(now.steps):
            final = index == len(now.steps) - 1
            colour = COLOURS[view.worker % len(COLOURS)]
            seen = ", ".join(map(str, view.step.visible(index)))
            grid.add_row(
                Text.assemble((f"{signs.last if final else signs.fork} ", "dim"), str(index)),
                Text(self._name(view), style=f"bold {colour}"),
                Text(_line(view.step.subtask)),
                *([_bar(view, begin, end, cells, signs, colour)] if wide else []),
                Text(seconds_text(view.usage.seconds) if view.state in ("answered", "failed") else ""),
            )
            grid.add_row(
                Text("" if final else signs.line, style="dim"),
                Text(f"sees {seen}" if seen else "", style="dim"),
                self._response(view, signs),
                *([Text(tokens_text(view.usage), style="dim")] if wide else []),
                Text(dollars_text(view.usage), style="dim"),
            )
        return grid

    def _name(self, view: StepView) -> str:
        name = printable(self._pool[view.worker].name)
        return name if view.worker == view.step.worker else f"{name} (instead)"

    def _response(self, view: StepView, signs: Signs) -> Text:
        match view.state:
            case "waiting":
                return Text("waits", style="dim")
            case "running":
                works = f"{self._turning(signs)} {_line(view.text[-TAIL:]) or 'works'}"
                return Text.assemble(_after(view.failed), (works, "dim"))
            case "answered":
                return Text.assemble(_after(view.failed), (f"{signs.says} ", "dim"), _line(view.text))
            case "failed":
                return Text.assemble(_after(view.failed[:-1]), (f"{signs.wrong} {_line(view.text)}", "red"))
            case "cancelled":
                return Text("cancelled" if view.started is not None else "not reached", style="dim")

    def _turning(self, signs: Signs) -> str:
        return signs.turning[int(self._clock() * 12) % len(signs.turning)]

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────────
    def _draw_end(self, episode: Episode, signs: Signs) -> Iterator[RenderableType]:
        if episode.answer is not None and self._show_answer:
            yield labelled("Answer", Text(printable(episode.answer), style="bold"))
        if episode.answer is not None and self._judge is not None:
            right, reference = self._judge(episode.answer)
            verdict = Text(f"{signs.right} right", style="bold green")
            if not right:
                verdict = Text(f"{signs.wrong} wrong: expected {printable(reference)}", style="bold red")
            yield labelled("", verdict)
        if episode.error is not None:
            yield labelled("Error", Text(printable(str(episode.error)), style="red"))
        steps = sum(len(one.workflow or ()) for one in episode.rounds)
        count = f"{steps} step{'' if steps == 1 else 's'}"
        seconds = f"{seconds_text(episode.seconds)} in all"
        if self._simulated:
            worked = sum(view.usage.seconds for one in self._rounds for view in one.steps)
            seconds = f"{seconds_text(worked)} of simulated work"
        parts = [count, tokens_text(episode.usage), dollars_text(episode.usage, zero=True), seconds]
        yield labelled("Cost", Text(f" {signs.dot} ".join(part for part in parts if part), style="dim"))


@contextmanager
def filling_in(view: EpisodeView, console: Console) -> Generator[None]:
    """Show the picture while the block runs: live on a terminal, once at the end anywhere else."""
    if not console.is_interactive or console.is_dumb_terminal:
        yield
        console.print(view)
        return
    from rich.live import Live

    with Live(view, console=console, refresh_per_second=12):
        yield


def labelled(label: str, content: RenderableType) -> Table:
    """A label and what it stands for, in two columns."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=9, no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    grid.add_row(label, content)
    return grid


def _said(planned: Planned, signs: Signs) -> Text:
    """What the Conductor's text meant, in a word."""
    if planned.workflow is None:
        return Text(f"{signs.wrong} no workflow: {printable(str(planned.error))}", style="red")
    if not planned.workflow.steps:
        return Text(f"{signs.right} accepts the answer", style="green")
    count = len(planned.workflow)
    return Text(f"{signs.right} a workflow of {count} step{'' if count == 1 else 's'}", style="green")


def _quoted(completion: Completion, gutter: str, console: Console, width: int) -> Iterator[Text]:
    """The completion as it was written, each line behind the gutter; its head is left out where it is long."""
    written = Text(printable(completion.text).strip("\n").expandtabs(4), style="italic")
    lines = list(written.wrap(console, max(20, width - len(gutter)), overflow="fold"))
    for line in lines if len(lines) <= SHOWN_LINES else [Text("…"), *lines[1 - SHOWN_LINES :]]:
        yield Text.assemble((gutter, "dim"), line)


def _bar(view: StepView, begin: float, end: float, cells: int, signs: Signs, colour: str) -> Text:
    """When the step ran, on the time axis of its round."""
    if view.started is None or end <= begin:
        return Text(signs.idle * cells, style="dim")
    scale = cells / (end - begin)
    first = min(cells - 1, max(0, int((view.started - begin) * scale)))
    until = end if view.ended is None else view.ended
    last = min(cells, max(first + 1, round((until - begin) * scale)))
    return Text.assemble(
        (signs.idle * first, "dim"), (signs.ran * (last - first), colour), (signs.idle * (cells - last), "dim")
    )


def _after(failed: Sequence[str]) -> Text:
    """The attempts that failed before, in a few words."""
    shown = failed if len(failed) <= 3 else ["…", *failed[-2:]]
    return Text(f"after {', '.join(shown)}: " if failed else "", style="yellow")


def _line(text: str) -> str:
    return " ".join(printable(text[:4000]).split())
