"""The list of episodes: its filters as they stand in an address, its pages, and CSV."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, get_args
from urllib.parse import urlencode

from openconductor import errors
from openconductor.errors import OpenConductorError
from openconductor.store import EpisodeFilter, EpisodeLine, EpisodeOrder, EpisodeOutcome
from openconductor.ui.amounts import moment_label
from openconductor.ui.replies import read_page

PAGE = 50
"""Episodes of a page."""
CSV_LINES = 10_000
"""The most lines of a CSV file."""
OUTCOMES = get_args(EpisodeOutcome)
ORDERS: tuple[EpisodeOrder, ...] = get_args(EpisodeOrder)
ERRORS = sorted(
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, OpenConductorError)
)
"""The classes of errors that an episode can end in."""

_TEXTS = ("worker", "error", "text", "key", "task")
_COLUMNS = (
    "id",
    "started",
    "outcome",
    "error",
    "question",
    "answer",
    "workers",
    "rounds",
    "steps",
    "calls",
    "input_tokens",
    "output_tokens",
    "dollars",
    "unpriced_calls",
    "seconds",
    "key",
    "model",
)
_AGES = {"h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0}


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of a list, as an address asks for it.

    Attributes:
        chosen: the filter.
        since: its ``since``, as it was written.
        page: from 1.
        problems: what could not be understood, and is left out.
        key: the visitor's, which is no filter of theirs; None: all episodes are listed.
    """

    chosen: EpisodeFilter
    since: str = ""
    page: int = 1
    problems: tuple[str, ...] = ()
    key: str | None = None

    @property
    def offset(self) -> int:
        """The number of episodes before the page."""
        return (self.page - 1) * PAGE

    @property
    def filters(self) -> dict[str, str]:
        """The filters that are set, by their names in an address."""
        values: dict[str, str] = {}
        for name in ("outcome", *_TEXTS):
            value = getattr(self.chosen, name)
            if value is not None:
                values[name] = value
        if self.key is not None:
            del values["key"]
        if self.since:
            values["since"] = self.since
        return values

    def address(self, **changes: Any) -> str:
        """Return the query of this list's address with other values; None leaves one out."""
        values: dict[str, Any] = {**self.filters}
        if self.chosen.order != "latest":
            values["order"] = self.chosen.order
        if self.page > 1:
            values["page"] = self.page
        values |= changes
        return urlencode({name: value for name, value in values.items() if value is not None})


def read_listing(query: Mapping[str, str], key: str | None) -> Listing:
    """Return the list that the query of an address asks for.

    Args:
        query: the names and values.
        key: the name of the visitor's key, whose episodes alone are listed; None: all are.
    """
    problems: list[str] = []
    values: dict[str, Any] = {name: query[name] for name in _TEXTS if query.get(name)}
    for name, allowed in (("outcome", OUTCOMES), ("order", ORDERS)):
        value = query.get(name)
        if value in allowed:
            values[name] = value
        elif value:
            problems.append(f"{name}: got {value!r}, expected one of {', '.join(allowed)}")
    since = query.get("since", "").strip()
    if since:
        moment = read_since(since)
        if moment is None:
            expected = "an age such as 12h, 7d or 2w, or a date such as 2026-11-27"
            problems.append(f"since: got {since!r}, expected {expected}")
            since = ""
        values["since"] = moment
    if key is not None:
        values["key"] = key
    return Listing(EpisodeFilter(**values), since, read_page(query), tuple(problems), key)


def read_since(text: str) -> float | None:
    """Return the moment of an age (``7d``) or a date, in seconds since 1970; None: it is neither.

    A date without a zone is in UTC.
    """
    with suppress(ValueError):
        if text[-1] in _AGES:
            moment = time.time() - float(text[:-1]) * _AGES[text[-1]]
            return moment if math.isfinite(moment) else None
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp()
    return None


def line_json(line: EpisodeLine) -> dict[str, object]:
    """Return a line in JSON's types, with plain columns."""
    values: dict[str, object] = {}
    for name in _COLUMNS:
        place = line if hasattr(line, name) else line.usage
        values[name] = getattr(place, name)
    values["dollars"] = format(line.usage.dollars, "f")
    values["workers"] = list(line.workers)
    return values


def as_csv(lines: Iterable[EpisodeLine]) -> str:
    """Return lines as CSV; a text that a spreadsheet would execute begins with an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(_COLUMNS)
    for line in lines:
        values = line_json(line)
        values["workers"] = " ".join(line.workers)
        values["started"] = moment_label(line.started)
        writer.writerow([_inert(value) for value in values.values()])
    return out.getvalue()


def _inert(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value
