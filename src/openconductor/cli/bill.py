"""What an episode cost, for people. In: a Ledger, a Usage. Out: a short table, and the words for tokens and dollars."""

from __future__ import annotations

from collections import Counter

from rich.console import Group
from rich.table import Table
from rich.text import Text

from openconductor.cli.console import printable
from openconductor.ledger import CONDUCTOR, Attempt, Ledger
from openconductor.types import Usage

LABEL, GAP = 9, 2  # cells of what stands before the lines, and between columns


def bill(ledger: Ledger, width: int) -> Group:
    """One line a worker: its calls, tokens and dollars, and what of that was wasted or paid for before.

    Where ``width`` cells are too few for that, the latter stands below, by the worker's name.
    """
    attempts: dict[str, list[Attempt]] = {}
    for entry in ledger.entries:
        for attempt in entry.attempts:
            attempts.setdefault(CONDUCTOR if entry.step is None else attempt.worker, []).append(attempt)
    rows: list[tuple[str, str, str, str, str]] = []
    for name, usage in ledger.by_worker:
        made = attempts[name]
        calls = f"{len(made)} call{'' if len(made) == 1 else 's'}"
        rows.append((printable(name), calls, tokens_text(usage), dollars_text(usage, zero=True), _remark(made)))
    needed = LABEL + sum(max(map(len, column), default=0) + GAP for column in zip(*rows, strict=True))
    table, below = Table.grid(padding=(0, GAP, 0, 0)), Table.grid(padding=(0, GAP, 0, 0))
    for grid in (table, below):
        grid.add_column(width=LABEL, no_wrap=True, style="bold")
    table.add_column(max_width=24, overflow="ellipsis")
    for style in ("", "dim", ""):
        table.add_column(justify="right", no_wrap=True, style=style)
    (table if needed <= width else below).add_column(style="yellow")
    for number, (name, *figures, remark) in enumerate(rows):
        table.add_row("" if number else "Bill", name, *map(Text, figures), *([Text(remark)] * (needed <= width)))
        if remark and needed > width:
            below.add_row("", Text(f"{name}: {remark}"))
    return Group(table, below) if below.rows else Group(table)


def _remark(attempts: list[Attempt]) -> str:
    """Which calls were wasted, and how many were paid for before."""
    outcomes = (one.outcome for one in attempts if one.wasted)
    wasted = Counter("not used" if outcome == "answered" else outcome for outcome in outcomes)
    parts: list[str] = []
    if wasted:
        lost = sum((one.usage for one in attempts if one.wasted), Usage())
        listed = ", ".join(f"{count} {outcome}" if count > 1 else outcome for outcome, count in wasted.items())
        parts.append(f"wasted: {listed}{f' ({dollars_text(lost)})' if dollars_text(lost) else ''}")
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
