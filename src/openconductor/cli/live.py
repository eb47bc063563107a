"""The picture of an episode while it happens, and its bill. In: the events of one episode. Out: something to print.

The picture shows what the Conductor wrote and, below it, the steps: who does what, who sees whom,
when each runs, what it answered and what that cost.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from openconductor.cli.console import counted, labelled, printable, say
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
from openconductor.ledger import CONDUCTOR, Attempt, Ledger
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
"""A worker keeps its colour: that of its ordinal."""

SHOWN_LINES = 14  # of what the Conductor wrote; the lists come at its end
NARROW = 72  # columns below which answers need the room of the bars, and of the tokens below them
TAIL = 400  # characters of a running step's text that are looked at

TURNING = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


@dataclass(slots=True)
class StepView:
    """What is known of a step; ``failed`` holds the outcomes of the attempts that failed."""

    step: Step
    worker: int
    text: str = ""
    started: float | None = None
    ended: float | None = None
    result: StepResult | None = None
    failed: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class RoundView:
    """What is known of a round; ``failed`` holds the outcomes of the Conductor's own attempts that failed."""

    planned: Planned | None = None
    steps: list[StepView] = field(default_factory=list[StepView])
    outcome: Round | None = None
    failed: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class EpisodeView:
    """Takes the events of one episode (it is an ``on_event``) and draws what is known so far.

    Attributes:
        question: what was asked.
        pool: names the workers.
        expected: the right answer, where it is known: then the picture ends with the answer and a
            verdict on it.
        simulated: whether the workers' seconds are simulated, as the gym's are: no wall time goes
            with them.
        clock: seconds, for what is running now.
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
        now = self.rounds[event.round]
        match event:
            case Planned():
                now.steps = [StepView(step, step.worker) for step in event.workflow or ()]
                now.planned = event
            case StepStarted():
                step = now.steps[event.step]
                step.worker, step.started, step.text = event.worker, event.at, ""
            case StepText():
                now.steps[event.step].text += event.text
            case StepEnded(result=result):
                step = now.steps[event.step]
                step.worker = result.asked
                step.started = step.started if result.started is None else result.started
                step.ended = event.at if result.ended is None else result.ended
                step.result = result
            case RoundEnded():
                now.outcome = event.outcome
                for step in now.steps:
                    step.ended = event.at if step.ended is None else step.ended
            case Answered():
                self.episode = event.outcome
            case CallEnded() if event.call.error is not None:
                (now if event.step is None else now.steps[event.step]).failed.append(
                    event.call.outcome
                )
            case _:
                pass

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw what is known."""
        asked = self.question if isinstance(self.question, str) else self.question[-1].content
        yield labelled("Question", Text(printable(asked)))
        for index, now in enumerate(list(self.rounds)):
            name = "Conductor" if len(self.rounds) == 1 else f"Conductor, round {index + 1}"
            yield Text()
            yield from self._draw_round(name, now, console, options.max_width)
        if self.episode is not None:
            yield Text()
            yield from self._draw_end(self.episode)

    def _draw_round(
        self, name: str, now: RoundView, console: Console, width: int
    ) -> Iterator[RenderableType]:
        planned = now.planned
        head = Table.grid(padding=(0, 2), expand=True)
        head.add_column(no_wrap=True, style="bold")
        head.add_column(ratio=1, no_wrap=True)
        head.add_column(justify="right", no_wrap=True, style="dim")
        head.add_row(
            name, self._said(now), "" if planned is None else cost(planned.completion.usage)
        )
        yield head
        if planned is None:
            return
        gutter = "│ " if now.steps else "  "
        yield from _quoted(planned.completion, gutter, console, width)
        if now.steps:
            yield Text(gutter, style="dim")
            yield self._draw_steps(now.steps, planned.at, width)

    def _said(self, now: RoundView) -> Text:
        """What the Conductor's text meant, or what it does."""
        planned, before = now.planned, _after(now.failed)
        if planned is None:
            if now.outcome is not None and now.outcome.error is not None:
                return Text(f"✗ {printable(str(now.outcome.error))}", style="red")
            writes = "" if self.episode is not None else f"{self._turning()} writes a workflow"
            return Text.assemble(before, (writes, "dim"))
        if planned.workflow is None:
            return Text.assemble(before, (f"✗ no workflow: {printable(str(planned.error))}", "red"))
        steps = len(planned.workflow)
        said = f"a workflow of {counted(steps, 'step')}" if steps else "accepts the answer"
        return Text.assemble(before, (f"✓ {said}", "green"))

    def _draw_steps(self, steps: Sequence[StepView], begin: float, width: int) -> Table:
        """Two lines a step. Where it is narrow the bars, and the tokens below them, are left out."""
        wide, dim = width >= NARROW, partial(Text, style="dim")
        grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True, max_width=20, overflow="ellipsis")
        grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        if wide:
            grid.add_column(no_wrap=True, justify="right")
        grid.add_column(
            no_wrap=True, justify="right", min_width=9
        )  # the width of a price: the picture does not jump
        end = max(step.ended or 0.0 for step in steps)
        if any(step.started is not None and step.ended is None for step in steps):
            end = max(end, self.clock() - self.origin)
        for index, view in enumerate(steps):
            final = index == len(steps) - 1
            colour = COLOURS[view.worker % len(COLOURS)]
            seen = ", ".join(map(str, view.step.visible(index)))
            instead = "" if view.worker == view.step.worker else " (instead)"
            used = Usage() if view.result is None else view.result.usage
            name = Text(printable(self.pool[view.worker].name) + instead, style=f"bold {colour}")
            branch = Text.assemble(("└─ " if final else "├─ ", "dim"), str(index))
            bars = [_bar(view, begin, end, 28 if width >= 100 else 18, colour)] if wide else []
            seconds = Text("" if view.result is None else seconds_text(used.seconds))
            grid.add_row(branch, name, Text(_line(view.step.subtask)), *bars, seconds)
            sees, tokens = (
                dim(f"sees {seen}" if seen else ""),
                [dim(tokens_text(used))] if wide else [],
            )
            grid.add_row(
                dim("" if final else "│ "),
                sees,
                self._response(view),
                *tokens,
                dim(dollars_text(used)),
            )
        return grid

    def _response(self, view: StepView) -> Text:
        if view.result is not None and view.result.completion is not None:
            return Text.assemble(
                _after(view.failed), ("→ ", "dim"), _line(view.result.completion.text)
            )
        if view.result is not None:
            return Text.assemble(
                _after(view.failed[:-1]), (f"✗ {_line(str(view.result.error))}", "red")
            )
        if view.ended is not None:
            return Text("not reached" if view.started is None else "cancelled", style="dim")
        if view.started is None:
            return Text("waits", style="dim")
        works = f"{self._turning()} {_line(view.text[-TAIL:]) or 'works'}"
        return Text.assemble(_after(view.failed), (works, "dim"))

    def _turning(self) -> str:
        return TURNING[int(self.clock() * 12) % len(TURNING)]

    def _draw_end(self, episode: Episode) -> Iterator[RenderableType]:
        if episode.answer is not None and self.expected is not None:
            yield labelled("Answer", Text(printable(episode.answer), style="bold"))
            verdict = Text("✓ right", style="bold green")
            if episode.answer.split() != self.expected.split():
                verdict = Text(f"✗ wrong: expected {printable(self.expected)}", style="bold red")
            yield labelled("", verdict)
        if episode.error is not None:
            yield labelled("Error", Text(printable(str(episode.error)), style="red"))
        seconds = f"{seconds_text(episode.seconds)} in all"
        if self.simulated:
            results = (view.result for one in self.rounds for view in one.steps)
            worked = sum(result.usage.seconds for result in results if result is not None)
            seconds = f"{seconds_text(worked)} of simulated work"
        steps = counted(sum(len(one.workflow or ()) for one in episode.rounds), "step")
        parts = [steps, tokens_text(episode.usage), dollars_text(episode.usage, zero=True), seconds]
        yield labelled("Cost", Text(" · ".join(filter(None, parts)), style="dim"))


@contextmanager
def filling_in(view: EpisodeView, console: Console) -> Generator[None]:
    """Show the picture while the block runs: live on a terminal, once at the end anywhere else."""
    if not console.is_interactive or console.is_dumb_terminal:
        yield
        console.print(view)
        return
    with Live(view, console=console, refresh_per_second=12):
        yield


def _quoted(completion: Completion, gutter: str, console: Console, width: int) -> Iterator[Text]:
    """The completion as it was written, each line behind the gutter; its head is left out where it is long."""
    written = Text(printable(completion.text).strip("\n").expandtabs(4), style="italic")
    lines = list(written.wrap(console, max(20, width - len(gutter)), overflow="fold"))
    for line in lines if len(lines) <= SHOWN_LINES else [Text("…"), *lines[1 - SHOWN_LINES :]]:
        yield Text.assemble((gutter, "dim"), line)


def _bar(view: StepView, begin: float, end: float, cells: int, colour: str) -> Text:
    """When the step ran, on the time axis of its round."""
    if view.started is None or end <= begin:
        return Text("─" * cells, style="dim")
    scale = cells / (end - begin)
    first = min(cells - 1, max(0, int((view.started - begin) * scale)))
    last = min(
        cells, max(first + 1, round(((end if view.ended is None else view.ended) - begin) * scale))
    )
    return Text.assemble(
        ("─" * first, "dim"), ("━" * (last - first), colour), ("─" * (cells - last), "dim")
    )


def _after(failed: Sequence[str]) -> Text:
    """The attempts that failed before, in a few words."""
    shown = failed if len(failed) <= 3 else ["…", *failed[-2:]]
    return Text(f"after {', '.join(shown)}: " if failed else "", style="yellow")


def _line(text: str) -> str:
    return " ".join(printable(text[:4000]).split())


# ── the bill ──────────────────────────────────────────────────────────────────────────────────────
def bill(ledger: Ledger) -> RenderableType:
    """One line a worker: its calls, tokens and dollars; below it what of that was wasted or paid for before."""
    attempts: defaultdict[str, list[Attempt]] = defaultdict(list)
    for entry in ledger.entries:
        for attempt in entry.attempts:
            attempts[CONDUCTOR if entry.step is None else attempt.call.worker].append(attempt)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(max_width=24, overflow="ellipsis")
    for style in ("", "dim", ""):
        table.add_column(justify="right", no_wrap=True, style=style)
    remarks: list[Text] = []
    for name, usage in ledger.by_worker.items():
        calls = counted(len(attempts[name]), "call")
        table.add_row(printable(name), calls, tokens_text(usage), dollars_text(usage, zero=True))
        if remark := _remark(attempts[name]):
            remarks.append(Text(f"{printable(name)}: {remark}", style="yellow"))
    return labelled("Bill", Group(table, *remarks))


def _remark(attempts: Sequence[Attempt]) -> str:
    """Which calls were wasted, and how many were paid for before."""
    parts: list[str] = []
    if lost := [call for call, wasted in attempts if wasted]:
        wasted = Counter("not used" if one.outcome == "answered" else one.outcome for one in lost)
        listed = ", ".join(
            f"{count} {outcome}" if count > 1 else outcome for outcome, count in wasted.items()
        )
        paid = dollars_text(sum((one.usage for one in lost), Usage()))
        parts.append(f"wasted: {listed}{f' ({paid})' if paid else ''}")
    if replayed := [call.usage for call, _ in attempts if call.replayed]:
        some = f"{len(replayed)} replayed ({dollars_text(sum(replayed, Usage()), zero=True)})"
        parts.append(f"{'replayed' if len(replayed) == len(attempts) else some}, not paid again")
    return "; ".join(parts)


def say_interrupted(calls: int, usage: Usage, go_on: str, *, kept: bool) -> None:
    """After Ctrl-C: what was spent, whether the answers are ``kept``, and how to go on."""
    again = "; what was answered is not paid for again" if kept else ""
    say(f"interrupted: {counted(calls, 'call')} until now, {dollars_text(usage, zero=True)}{again}")
    say(f"go on with: {go_on}")


def cost(usage: Usage) -> str:
    """Tokens, dollars and seconds, as far as there were any."""
    return "  ".join(
        filter(None, (tokens_text(usage), dollars_text(usage), seconds_text(usage.seconds)))
    )


def tokens_text(usage: Usage) -> str:
    """Tokens read and written."""
    return f"{usage.input_tokens:,} + {usage.output_tokens:,} tokens" if usage.tokens else ""


def dollars_text(usage: Usage, *, zero: bool = False) -> str:
    """The dollars that are known, and the calls whose price is not; ``zero`` says whether $0 is worth a word."""
    if usage.unpriced_calls and not usage.dollars:
        return "price unknown"
    known = f"${usage.dollars:.6f}" if usage.dollars < 1 else f"${usage.dollars:.2f}"
    if usage.unpriced_calls:
        return f"{known} + {counted(usage.unpriced_calls, 'call')} of unknown price"
    return known if usage.dollars or zero else ""


def seconds_text(seconds: float) -> str:
    """Seconds, or milliseconds where these are few."""
    return f"{seconds * 1000:.0f} ms" if seconds < 0.1 else f"{seconds:.1f} s"
