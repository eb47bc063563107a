"""The bill of an episode, and amounts as short texts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from openconductor.cli.console import counted, labelled, printable, say
from openconductor.ledger import CONDUCTOR, Attempt, Ledger
from openconductor.types import Usage


def bill(ledger: Ledger) -> RenderableType:
    """Return the bill: a line a worker, and below them the calls that were wasted or replayed."""
    attempts: defaultdict[str, list[Attempt]] = defaultdict(list)
    for entry in ledger.entries:
        for attempt in entry.attempts:
            worker = CONDUCTOR if entry.step is None else attempt.call.worker
            attempts[worker].append(attempt)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(max_width=24, overflow="ellipsis")
    for style in ("", "dim", ""):
        table.add_column(justify="right", no_wrap=True, style=style)
    remarks: list[Text] = []
    for worker, usage in ledger.by_worker.items():
        calls = counted(len(attempts[worker]), "call")
        dollars = dollars_text(usage, zero=True)
        table.add_row(printable(worker), calls, tokens_text(usage), dollars)
        for remark in (_wasted_text(attempts[worker]), _replayed_text(attempts[worker])):
            if remark:
                line = f"{printable(worker)}: {remark}"
                remarks.append(Text(line, style="yellow"))
    return labelled("Bill", Group(table, *remarks))


def _wasted_text(attempts: Sequence[Attempt]) -> str:
    """Say how a worker's wasted calls ended, and what they cost."""
    wasted = [call for call, is_wasted in attempts if is_wasted]
    if not wasted:
        return ""
    reasons = Counter("not used" if call.outcome == "answered" else call.outcome for call in wasted)
    parts: list[str] = []
    for reason, count in reasons.items():
        parts.append(reason if count == 1 else f"{count} {reason}")
    text = f"wasted: {', '.join(parts)}"
    dollars = dollars_text(sum((call.usage for call in wasted), Usage()))
    if dollars:
        text += f" ({dollars})"
    return text


def _replayed_text(attempts: Sequence[Attempt]) -> str:
    """Say how many of a worker's calls came from the journal."""
    replayed = [call.usage for call, _ in attempts if call.replayed]
    if not replayed:
        return ""
    if len(replayed) == len(attempts):
        return "replayed, not paid again"
    dollars = dollars_text(sum(replayed, Usage()), zero=True)
    return f"{len(replayed)} replayed ({dollars}), not paid again"


def say_interrupted(calls: int, usage: Usage, command: str, *, kept: bool) -> None:
    """Say after Ctrl-C what was spent, whether the answers are ``kept``, and how to resume."""
    text = f"interrupted after {counted(calls, 'call')}, {dollars_text(usage, zero=True)}"
    if kept:
        text += "; finished calls are not paid for again"
    say(text)
    say(f"resume with: {command}")


def cost(usage: Usage) -> str:
    """Return tokens, dollars and seconds, as far as there were any."""
    parts = (tokens_text(usage), dollars_text(usage), seconds_text(usage.seconds))
    return "  ".join(filter(None, parts))


def tokens_text(usage: Usage) -> str:
    """Return the tokens read and written."""
    return f"{usage.input_tokens:,} + {usage.output_tokens:,} tokens" if usage.tokens else ""


def dollars_text(usage: Usage, *, zero: bool = False) -> str:
    """Return the known dollars and the number of unpriced calls. ``zero``: also say $0."""
    if usage.unpriced_calls and not usage.dollars:
        return "price unknown"
    known = f"${usage.dollars:.6f}" if usage.dollars < 1 else f"${usage.dollars:.2f}"
    if usage.unpriced_calls:
        return f"{known} + {counted(usage.unpriced_calls, 'call')} of unknown price"
    if usage.dollars or zero:
        return known
    return ""


def seconds_text(seconds: float) -> str:
    """Return seconds, or milliseconds below 0.1 s."""
    return f"{seconds * 1000:.0f} ms" if seconds < 0.1 else f"{seconds:.1f} s"
