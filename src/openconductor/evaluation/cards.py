"""Write cards: what an evaluation found a worker to be good at, in one line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal
from statistics import fmean, median

from openconductor.evaluation.records import Record
from openconductor.pool import write_card

FEWEST = 20
"""Answers of a kind of question, below which a card does not speak of it: the best of many rare kinds are luck."""


def card_of(records: Sequence[Record]) -> str:
    """What a worker's records say of it, over the whole task where all kinds are rare; "" where there are too few."""
    by_kind: dict[str, list[bool]] = defaultdict(list)
    for record in records:
        if record.correct is not None:
            by_kind[record.kind or record.task].append(record.correct)
    kinds = {kind: right for kind, right in by_kind.items() if len(right) >= FEWEST}
    kinds = kinds or {records[0].task: [right for each in by_kind.values() for right in each]}
    if min(map(len, kinds.values())) < FEWEST:
        return ""
    priced = not any(record.usage.unpriced_calls for record in records)
    dollars = f"${_short(fmean(record.usage.dollars for record in records))} and " if priced else ""
    seconds = _short(median(record.usage.seconds for record in records))
    return f"{write_card({kind: fmean(right) for kind, right in kinds.items()})}; {dollars}{seconds} s an answer"


def _short(number: float | Decimal) -> str:
    """A number in two digits, without an exponent."""
    return f"{Decimal(f'{number:.2g}'):f}"
