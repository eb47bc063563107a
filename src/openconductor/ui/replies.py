"""Replies to requests: a page with its values, data as JSON, and errors for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.responses import Response

from openconductor.store.serialisation import plain


class PageProblem(Exception):
    """A request that is answered by an error.

    Attributes:
        status: the HTTP status.
        detail: why, for people.
        page: is shown with it, such as the form to be corrected; None: the error alone.
    """

    def __init__(self, status: int, detail: str, page: Page | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.page = page


@dataclass(frozen=True, slots=True)
class Page:
    """The answer at an address: a template with its values, and the same as JSON.

    Attributes:
        template: its name.
        title: the page's.
        values: what the template shows.
        data: returns the same in JSON's types.
    """

    template: str
    title: str
    values: Mapping[str, object]
    data: Callable[[], object]


def read_page(query: Mapping[str, str]) -> int:
    """Return the number of a page of a list, from 1, as the query of an address has it."""
    text = query.get("page", "1")
    return max(1, int(text)) if text.isdecimal() and len(text) < 9 else 1


def as_json(value: object, status: int = 200) -> Response:
    """Return a value as JSON."""
    return Response(json.dumps(plain(value)), status, media_type="application/json")
