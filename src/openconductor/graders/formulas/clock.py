r"""Reads times of day (``3:30\\text{ p.m.}``, ``15:30``, ``noon``) and compares them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAMED = {"noon": 720, "midnight": 0}
_NAME = re.compile(r"(?:12(?::00)?\s*)?(noon|midnight)")
_CLOCK = re.compile(
    r"(\d{1,2})(?:\s*:\s*(\d{2}))?\s*(?:o'clock\s*)?(?:in the\s+)?"
    r"([ap]\.?\s*m\.?|morning|afternoon|evening)?"
)
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Time:
    """A time of day.

    Attributes:
        minute: minutes since midnight; since midnight or noon, where nothing says which.
        half: "a" or "p"; "": none is named.
    """

    minute: int
    half: str = ""


def read_time(text: str) -> Time | None:
    """Read a time of day: a clock's digits, a half of the day behind an hour, or a name."""
    plain = _TEXT.sub(r"\1", text).replace("{:}", ":").strip().lower()
    name = _NAME.fullmatch(plain)
    if name is not None:
        return Time(_NAMED[name[1]], "p" if name[1] == "noon" else "a")
    clock = _CLOCK.fullmatch(plain)
    if clock is None or not (clock[2] or clock[3]):
        return None
    hour, minute = int(clock[1]), int(clock[2] or 0)
    if hour > 24 or minute > 59:
        return None
    if not clock[3]:
        return Time(hour * 60 + minute)
    if not 1 <= hour <= 12:
        return None
    minute += hour % 12 * 60
    if clock[3] == "morning" or (clock[3].startswith("a") and clock[3] != "afternoon"):
        return Time(minute, "a")
    return Time(minute + 720, "p")


def same_time(gold: Time, answer: Time) -> bool:
    """Return True if two times are one; the half of the day may be missing on one side."""
    if gold.minute == answer.minute:
        return True
    if bool(gold.half) == bool(answer.half):
        return False
    named, other = (gold, answer) if gold.half else (answer, gold)
    return named.minute % 720 == other.minute % 720 and other.minute <= 779
