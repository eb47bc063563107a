"""The picture of an episode while it happens, and its bill. In: the events of one episode. Out: something to print.

The picture shows what the Conductor wrote and, below it, the steps: who does what, who sees whom, when each runs, what
it answered and what that cost.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from openconductor.cli.console import labelled, printable
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
from openconductor.types import Completion, Episode, Question, Round, Step, Usage

if TYPE_CHECKING:
    from openconductor.pool import WorkerPool

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red", "bright_cyan", "bright_magenta")
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
    state: str = "waiting"  # running, answered, failed, cancelled
    text: str = ""
    started: float | None = None
    ended: float | None = None
    usage: Usage = field(default_factory=Usage)
    failed: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class RoundView:
    """What is known of a round; ``failed`` holds the outcomes of the Conductor's own attempts that failed."""

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
        self._rounds = [RoundView()]
        self._episode: Episode | None = None

    def __call__(self, event: Event) -> None:
        """Take an event in."""
        while len(self._rounds) <= event.round:
            self._rounds.append(RoundView())
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
            case StepEnded(result=result):
                step = now.steps[event.step]
                step.worker = step.worker if result.worker is None else result.worker
                step.started = step.started if result.started is None else result.started
                step.ended = event.at if result.ended is None else result.ended
                step.usage = result.usage
                said = result.completion
                step.state = "failed" if said is None else "answered"
                step.text = str(result.error or "") if said is None else said.text
            case RoundEnded():
                now.outcome = event.outcome
                for step in now.steps:
                    if step.state in ("waiting", "running"):
                        step.state, step.ended = "cancelled", event.at
            case Answered():
                self._episode = event.outcome
            case CallEnded() if event.call.error is not None:
                (now if event.step is None else now.steps[event.step]).failed.append(event.call.outcome)
            case _:
                pass

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw what is known."""
        asked = self._question if isinstance(self._question, str) else self._question[-1].content
        yield labelled("Question", Text(printable(asked)))
        for index, now in enumerate(list(self._rounds)):
            name = "Conductor" if len(self._rounds) == 1 else f"Conductor, round {index + 1}"
            yield Text()
            yield from self._draw_round(name, now, console, options.max_width)
        if self._episode is not None:
            yield Text()
            yield from self._draw_end(self._episode)

    def _draw_round(self, name: str, now: RoundView, console: Console, width: int) -> Iterator[RenderableType]:
        head = Table.grid(padding=(0, 2), expand=True)
        head.add_column(no_wrap=True)
        head.add_column(ratio=1, no_wrap=True)
        head.add_column(justify="right", no_wrap=True)
        head.add_row(
            Text(name, style="bold"),
            self._said(now),
            Text(cost(now.planned.completion.usage) if now.planned is not None else "", style="dim"),
        )
        yield head
        if now.planned is None:
            return
        gutter = "│ " if now.steps else "  "
        yield from _quoted(now.planned.completion, gutter, console, width)
        if now.steps:
            yield Text(gutter, style="dim")
            yield self._draw_steps(now, now.planned.at, width)

    def _said(self, now: RoundView) -> Text:
        """What the Conductor's text meant, or what it does."""
        planned, before = now.planned, _after(now.failed)
        if planned is None:
            error = now.outcome.error if now.outcome is not None else None
            if error is not None:
                return Text(f"✗ {printable(str(error))}", style="red")
            writes = "" if self._episode is not None else f"{self._turning()} writes a workflow"
            return Text.assemble(before, (writes, "dim"))
        if planned.workflow is None:
            return Text.assemble(before, (f"✗ no workflow: {printable(str(planned.error))}", "red"))
        said = f"a workflow of {_steps(len(planned.workflow))}" if planned.workflow.steps else "accepts the answer"
        return Text.assemble(before, (f"✓ {said}", "green"))

    def _draw_steps(self, now: RoundView, begin: float, width: int) -> Table:
        wide = width >= NARROW
        grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True, max_width=20, overflow="ellipsis")
        grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        if wide:
            grid.add_column(no_wrap=True, justify="right")
        grid.add_column(no_wrap=True, justify="right", min_width=9)  # the width of a price: the picture does not jump
        end = max((step.ended or 0.0 for step in now.steps), default=0.0)
        if any(step.state == "running" for step in now.steps):
            end = max(end, self._clock() - self._origin)
        for index, view in enumerate(now.steps):
            final = index == len(now.steps) - 1
            colour = COLOURS[view.worker % len(COLOURS)]
            seen = ", ".join(map(str, view.step.visible(index)))
            instead = "" if view.worker == view.step.worker else " (instead)"
            done = view.state in ("answered", "failed")
            grid.add_row(
                Text.assemble((f"{'└─' if final else '├─'} ", "dim"), str(index)),
                Text(printable(self._pool[view.worker].name) + instead, style=f"bold {colour}"),
                Text(_line(view.step.subtask)),
                *([self._bar(view, begin, end, 28 if width >= 100 else 18, colour)] if wide else []),
                Text(seconds_text(view.usage.seconds) if done else ""),
            )
            grid.add_row(
                Text("" if final else "│ ", style="dim"),
                Text(f"sees {seen}" if seen else "", style="dim"),
                self._response(view),
                *([Text(tokens_text(view.usage), style="dim")] if wide else []),
                Text(dollars_text(view.usage), style="dim"),
            )
        return grid

    def _bar(self, view: StepView, begin: float, end: float, cells: int, colour: str) -> Text:
        """When the step ran, on the time axis of its round."""
        if view.started is None or end <= begin:
            return Text("─" * cells, style="dim")
        scale = cells / (end - begin)
        first = min(cells - 1, max(0, int((view.started - begin) * scale)))
        last = min(cells, max(first + 1, round(((end if view.ended is None else view.ended) - begin) * scale)))
        return Text.assemble(("─" * first, "dim"), ("━" * (last - first), colour), ("─" * (cells - last), "dim"))

    def _response(self, view: StepView) -> Text:
        match view.state:
            case "running":
                works = f"{self._turning()} {_line(view.text[-TAIL:]) or 'works'}"
                return Text.assemble(_after(view.failed), (works, "dim"))
            case "answered":
                return Text.assemble(_after(view.failed), ("→ ", "dim"), _line(view.text))
            case "failed":
                return Text.assemble(_after(view.failed[:-1]), (f"✗ {_line(view.text)}", "red"))
            case "cancelled":
                return Text("cancelled" if view.started is not None else "not reached", style="dim")
            case _:
                return Text("waits", style="dim")

    def _turning(self) -> str:
        return TURNING[int(self._clock() * 12) % len(TURNING)]

    def _draw_end(self, episode: Episode) -> Iterator[RenderableType]:
        if episode.answer is not None and self._show_answer:
            yield labelled("Answer", Text(printable(episode.answer), style="bold"))
        if episode.answer is not None and self._judge is not None:
            right, reference = self._judge(episode.answer)
            verdict = Text("✓ right", style="bold green")
            if not right:
                verdict = Text(f"✗ wrong: expected {printable(reference)}", style="bold red")
            yield labelled("", verdict)
        if episode.error is not None:
            yield labelled("Error", Text(printable(str(episode.error)), style="red"))
        seconds = f"{seconds_text(episode.seconds)} in all"
        if self._simulated:
            worked = sum(view.usage.seconds for one in self._rounds for view in one.steps)
            seconds = f"{seconds_text(worked)} of simulated work"
        steps = _steps(sum(len(one.workflow or ()) for one in episode.rounds))
        parts = [steps, tokens_text(episode.usage), dollars_text(episode.usage, zero=True), seconds]
        yield labelled("Cost", Text(" · ".join(filter(None, parts)), style="dim"))


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


def _quoted(completion: Completion, gutter: str, console: Console, width: int) -> Iterator[Text]:
    """The completion as it was written, each line behind the gutter; its head is left out where it is long."""
    written = Text(printable(completion.text).strip("\n").expandtabs(4), style="italic")
    lines = list(written.wrap(console, max(20, width - len(gutter)), overflow="fold"))
    for line in lines if len(lines) <= SHOWN_LINES else [Text("…"), *lines[1 - SHOWN_LINES :]]:
        yield Text.assemble((gutter, "dim"), line)


def _after(failed: Sequence[str]) -> Text:
    """The attempts that failed before, in a few words."""
    shown = failed if len(failed) <= 3 else ["…", *failed[-2:]]
    return Text(f"after {', '.join(shown)}: " if failed else "", style="yellow")


def _line(text: str) -> str:
    return " ".join(printable(text[:4000]).split())


def _steps(count: int) -> str:
    return f"{count} step{'' if count == 1 else 's'}"


# ── the bill ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def bill(ledger: Ledger) -> Group:
    """One line a worker: its calls, tokens and dollars; below it what of that was wasted or paid for before."""
    attempts: dict[str, list[Attempt]] = {}
    for entry in ledger.entries:
        for attempt in entry.attempts:
            attempts.setdefault(CONDUCTOR if entry.step is None else attempt.worker, []).append(attempt)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(max_width=24, overflow="ellipsis")
    for style in ("", "dim", ""):
        table.add_column(justify="right", no_wrap=True, style=style)
    remarks: list[Text] = []
    for name, usage in ledger.by_worker.items():
        made = attempts[name]
        calls = f"{len(made)} call{'' if len(made) == 1 else 's'}"
        table.add_row(printable(name), calls, tokens_text(usage), dollars_text(usage, zero=True))
        if remark := _remark(made):
            remarks.append(Text(f"{printable(name)}: {remark}", style="yellow"))
    return Group(labelled("Bill", Group(table, *remarks)))


def _remark(attempts: list[Attempt]) -> str:
    """Which calls were wasted, and how many were paid for before."""
    lost = [one for one in attempts if one.wasted]
    parts: list[str] = []
    if lost:
        wasted = Counter("not used" if one.outcome == "answered" else one.outcome for one in lost)
        listed = ", ".join(f"{count} {outcome}" if count > 1 else outcome for outcome, count in wasted.items())
        paid = dollars_text(sum((one.usage for one in lost), Usage()))
        parts.append(f"wasted: {listed}{f' ({paid})' if paid else ''}")
    replayed = [one.usage for one in attempts if one.replayed]
    if len(replayed) == len(attempts):
        parts.append("replayed, not paid again")
    elif replayed:
        parts.append(f"{len(replayed)} replayed ({dollars_text(sum(replayed, Usage()), zero=True)}), not paid again")
    return "; ".join(parts)


def cost(usage: Usage) -> str:
    """Tokens, dollars and seconds, as far as there were any."""
    return "  ".join(part for part in (tokens_text(usage), dollars_text(usage), seconds_text(usage.seconds)) if part)


def tokens_text(usage: Usage) -> str:
    """Tokens read and written."""
    return f"{usage.input_tokens:,} + {usage.output_tokens:,} tokens" if usage.tokens else ""


def dollars_text(usage: Usage, *, zero: bool = False) -> str:
    """The dollars that are known, and the calls whose price is not; ``zero`` says whether $0 is worth a word."""
    if usage.unpriced_calls and not usage.dollars:
        return "price unknown"
    known = f"${usage.dollars:.6f}" if usage.dollars < 1 else f"${usage.dollars:.2f}"
    if usage.unpriced_calls:
        calls = "1 call" if usage.unpriced_calls == 1 else f"{usage.unpriced_calls} calls"
        return f"{known} + {calls} of unknown price"
    return known if usage.dollars or zero else ""


def seconds_text(seconds: float) -> str:
    """Seconds, or milliseconds where these are few."""
    return f"{seconds * 1000:.0f} ms" if seconds < 0.1 else f"{seconds:.1f} s"
