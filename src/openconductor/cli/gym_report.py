"""The demo's table for people.

In: the values of ``demo --json``. Out: something that Rich can print: who is right how often with 95 % intervals, how
the Conductor works, and what its lead is, in words that say no more than the figures do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isnan
from typing import cast

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from openconductor.cli.live import COLOURS, labelled
from openconductor.gym.workers import PROFILES

Values = Mapping[str, object]

BAR = 30  # cells of a bar of 100 %, where there is room
SHORTEST_BAR = 6  # below that it shows nothing
BETWEEN = 3  # cells from one column to the next
LEVELS = (
    ("oracle", "oracle: the best workflow of each question"),
    ("conductor", "Conductor"),
    ("best_fixed", "best fixed workflow"),
    ("random", "random workflows"),
)

_EIGHTHS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of the table: shares in [0, 1]."""

    name: str
    accuracy: float
    interval: tuple[float, float] | None
    style: str = ""
    worker: int | None = None


@dataclass(frozen=True, slots=True)
class GymReport:
    """The report, drawn when it is printed (it needs to know what the console can show)."""

    values: Values

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the table, how the Conductor works, and its lead."""
        ascii_only = options.ascii_only
        yield Text.assemble(
            (f"{_whole(self.values['questions']):,} held-out questions of the gym", "bold"),
            f", seed {_whole(self.values['seed'])}, in {_number(self.values['seconds']):.1f} s",
        )
        yield self._table(ascii_only, options.max_width)
        yield from self._strategy(ascii_only)
        yield Text()
        yield labelled("In short", self.verdict())

    def verdict(self) -> Text:
        """The lead over the best worker and the best fixed workflow, and the share of the oracle."""
        accuracy = _numbers(self.values["accuracy"])
        name, _ = self._best_worker()
        ours = accuracy["conductor"]
        text = Text.assemble("The Conductor is right on ", (f"{ours:.1%}", "bold green"), " of the questions: ")
        text.append(self._lead("best_worker", f"the best worker alone ({name})"))
        text.append(", ")
        text.append(self._lead("best_fixed", "the best fixed workflow"))
        if accuracy["oracle"] > 0:
            text.append(f", and {ours / accuracy['oracle']:.1%} of what the oracle reaches")
        return text.append(".")

    def _lead(self, over: str, name: str) -> str:
        """One difference in percentage points; said to be uncertain where the intervals overlap."""
        accuracy, intervals = _numbers(self.values["accuracy"]), cast("Values", self.values["ci95"])
        points = 100 * (accuracy["conductor"] - accuracy[over])
        (low, high), (other_low, other_high) = _interval(intervals["conductor"]), _interval(intervals[over])
        doubt = " (the intervals overlap)" if low <= other_high and other_low <= high else ""
        return f"{abs(points):.1f} percentage points {'above' if points >= 0 else 'below'} {name}{doubt}"

    def _best_worker(self) -> tuple[str, float]:
        return max(_numbers(self.values["workers"]).items(), key=lambda entry: entry[1])

    # ── who is right how often ───────────────────────────────────────────────────────────────────────────────────────
    def _table(self, ascii_only: bool, room: int) -> Table:
        """No figure is ever cut off: bars are shorter in a narrow room, or left out, and names fold."""
        table = Table(box=box.ASCII if ascii_only else box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        rows = list(self._rows())
        names = max(len(row.name) for row in rows)
        shares = max(len(f"{row.accuracy:.1%}") for row in rows)
        table.add_column("", overflow="fold")
        table.add_column("right", justify="right", no_wrap=True, min_width=shares)
        table.add_column("95 % interval", justify="right", no_wrap=True, min_width=len("95 % interval"))
        cells = min(BAR, room - names - shares - len("95 % interval") - 3 * BETWEEN)
        if cells >= SHORTEST_BAR:
            table.add_column("", no_wrap=True)
        for row in rows:
            interval = "" if row.interval is None else f"{100 * row.interval[0]:.1f} – {100 * row.interval[1]:.1f}"
            drawn = Text(bar(row.accuracy, cells, ascii_only=ascii_only), style=row.style or "dim")
            table.add_row(
                Text(row.name, style=row.style),
                Text(f"{row.accuracy:.1%}", style=row.style),
                Text(interval.replace("–", "-") if ascii_only else interval, style="dim"),
                *([drawn] if cells >= SHORTEST_BAR else []),
            )
        return table

    def _rows(self) -> Iterator[_Row]:
        accuracy, intervals = _numbers(self.values["accuracy"]), cast("Values", self.values["ci95"])
        styles = {"conductor": "bold green", "oracle": "bold", "best_fixed": "", "random": ""}
        for key, name in LEVELS[:3]:
            yield _Row(name, accuracy[key], _interval(intervals[key]), styles[key])
        best, _ = self._best_worker()
        workers = sorted(_numbers(self.values["workers"]).items(), key=lambda entry: -entry[1])
        for name, share in workers:
            interval = _interval(intervals["best_worker"]) if name == best else None
            note = " alone, the best worker" if name == best else " alone"
            yield _Row(name + note, share, interval, "" if name == best else "dim")
        for key, name in LEVELS[3:]:
            yield _Row(name, accuracy[key], _interval(intervals[key]), styles[key])

    # ── how the Conductor works ──────────────────────────────────────────────────────────────────────────────────────
    def _strategy(self, ascii_only: bool) -> Iterator[RenderableType]:
        values = self.values
        yield Text()
        valid, given = _number(values["validity"]), values["accuracy_given_valid"]
        right = "" if given is None else f"; of the valid, {_number(given):.1%} are right"
        masked = _whole(values.get("masked", 0))
        left_out = f"; {masked} could not be decided and are left out" if masked else ""
        yield labelled("Workflows", Text(f"{valid:.1%} are valid{right}{left_out}"))
        steps = _numbers(values["mean_steps_by_kind"])
        arrow = " > " if ascii_only else " → "
        by_kind = arrow.join(f"{kind} {_decimal(count)}" for kind, count in steps.items())
        yield labelled("Steps", Text(f"{_decimal(_number(values['mean_steps']))} on average; {by_kind}"))
        shapes = sorted(_numbers(values["topology_share"]).items(), key=lambda entry: -entry[1])
        yield labelled("Shapes", Text(", ".join(f"{name} {share:.0%}" for name, share in shapes) or "none"))
        yield labelled("Workers", self._shares())
        bits = _number(values["routing_entropy_bits"])
        yield labelled(
            "Routing", Text(f"{bits:.2f} bits of entropy over the workers (all to one: 0, an even spread: 3)")
        )
        used = cast("Values", values["usage"])
        dollars = float(str(used["dollars"]))
        each = dollars / max(1, _whole(values["questions"]))
        tokens = f"{_whole(used['input_tokens']):,} tokens read, {_whole(used['output_tokens']):,} written"
        yield labelled("Cost", Text(f"{tokens}, ${dollars:.4f} in all: ${each:.6f} a question, at the gym's prices"))

    def _shares(self) -> Text:
        colours = {profile.name: COLOURS[ordinal % len(COLOURS)] for ordinal, profile in enumerate(PROFILES)}
        shares = sorted(_numbers(self.values["worker_share"]).items(), key=lambda entry: -entry[1])
        text = Text()
        for name, share in (entry for entry in shares if entry[1] > 0):
            text.append(", " if text else "")
            text.append(name, style=colours.get(name, ""))
            text.append(f" {share:.0%}")
        return text.append(" of the steps" if text else "none")


def bar(share: float, whole: int = BAR, *, ascii_only: bool = False) -> str:
    """A bar of a share in [0, 1], to the eighth of a cell; 1 is ``whole`` cells.

    >>> bar(0.05)
    '█▌'
    """
    cells = whole * max(0.0, min(1.0, share))
    if ascii_only:
        return "#" * round(cells)
    eighths = round(8 * cells)
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def _decimal(value: float) -> str:
    return "none" if isnan(value) else f"{value:.2f}"


def _whole(value: object) -> int:
    return int(_number(value))


def _numbers(value: object) -> dict[str, float]:
    return {name: _number(entry) for name, entry in cast("Values", value).items()}


def _interval(value: object) -> tuple[float, float]:
    low, high = cast("tuple[object, object]", value)
    return _number(low), _number(high)
