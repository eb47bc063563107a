"""Amounts as short texts, for tables and labels."""

from __future__ import annotations

import time
from decimal import Decimal

from openconductor.types import Usage


def dollars_label(usage: Usage) -> str:
    """Return US dollars, ``≥`` before them where the price of some calls is unknown.

    >>> from decimal import Decimal
    >>> dollars_label(Usage(dollars=Decimal("0.00123"))), dollars_label(Usage(unpriced_calls=1))
    ('$0.00123', 'unknown')
    """
    if usage.unpriced_calls and not usage.dollars:
        return "unknown"
    text = price_label(usage.dollars)
    return f"≥ {text}" if usage.unpriced_calls else text


def price_label(dollars: Decimal | None) -> str:
    """Return US dollars; "unknown": None.

    >>> price_label(Decimal("0.9999998")), price_label(Decimal("0.5")), price_label(Decimal(1200))
    ('$1.00', '$0.5', '$1,200.00')
    """
    if dollars is None:
        return "unknown"
    amount = float(dollars)
    if not amount:
        return "$0"
    if round(amount, 6) >= 1:
        return f"${amount:,.2f}"
    if amount >= 0.000001:
        return f"${amount:.6f}".rstrip("0")
    return f"${amount:.1e}"


def seconds_label(seconds: float | None) -> str:
    """Return a duration; "–": unknown.

    >>> seconds_label(0.0123), seconds_label(2.34), seconds_label(135)
    ('12 ms', '2.3 s', '2 min 15 s')
    """
    if seconds is None:
        return "–"
    if 0 < seconds < 0.001:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def moment_label(moment: float | None) -> str:
    """Return a time (seconds since 1970) in UTC, to the second; "–": unknown."""
    if moment is None:
        return "–"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(moment))
