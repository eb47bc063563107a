"""What an episode cost, for people. In: a Ledger, a Usage. Out: a short table, and the words for tokens and dollars."""

from __future__ import annotations

from collections import Counter

from rich.table import Table
from rich.text import Text

from openconductor.cli.console import printable
from openconductor.ledger import CONDUCTOR, Attempt, Ledger
from openconductor.types import Usage


def bill(ledger: Ledger) -> Table:
    """One line a worker: its calls, tokens and dollars, and what of that was wasted or paid for before."""
    attempts: dict[str, list[Attempt]] = {}
    for entry in ledger.entries:
        for attempt in entry.attempts:
            attempts.setdefault(CONDUCTOR if entry.step is None else attempt.worker, []).append(attempt)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=9, no_wrap=True, style="bold")
    table.add_column(max_width=24, no_wrap=True, overflow="ellipsis")
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for number, (name, usage) in enumerate(ledger.by_worker):
        made = attempts[name]
        calls = f"{len(made)} call{'' if len(made) == 1 else 's'}"
        table.add_row(
            "" if number else "Bill",
            printable(name),
            calls,
            Text(tokens_text(usage), style="dim"),
            dollars_text(usage, zero=True),
            Text(_remark(made), style="yellow"),
        )
    return table


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
        return f"{known} + {usage.unpriced_calls} calls of unknown price"
    return known if usage.dollars or zero else ""


def seconds_text(seconds: float) -> str:
    """Seconds, or milliseconds where these are few."""
    return f"{seconds * 1000:.0f} ms" if seconds < 0.1 else f"{seconds:.1f} s"
