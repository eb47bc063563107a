"""Rendering: the templates, what they may use, and the limits that keep every page small.

Jinja escapes all text, so that what a model wrote is never markup. Texts are cut so that a page
stays below 200 kB whatever was said; the exported file holds them whole.
"""

from __future__ import annotations

import functools
import re
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from importlib.resources import files
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from openconductor.report.words import INVISIBLE, counted
from openconductor.ui import amounts
from openconductor.ui.door import PREFIX
from openconductor.ui.entrance import with_plain_lines
from openconductor.ui.graph import NODE_HEIGHT
from openconductor.ui.parts import RoundParts

POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'"
)
"""The content security policy of every page: nothing from elsewhere, nothing inline."""
COLOURS = 8
"""The colours of workers, by ordinal; further workers are hollow, and known by their names."""

STATIC = {
    "icon.svg": "image/svg+xml",
    "script.js": "text/javascript",
    "style.css": "text/css",
}
"""The media types of the static files, by name."""

_TEXTS = 90_000  # bytes of all cut texts of a page
_LEAST = 300  # bytes that each of them may have
_COMMAND = re.compile(": (openconductor .+)$")


class Excerpt(NamedTuple):
    """The beginning of a text, and how many characters are left out."""

    text: str
    left_out: int


def excerpt(text: str, most: int) -> Excerpt:
    """Return the beginning of a text that takes at most ``most`` bytes of a page."""
    kept = text[:most]
    while len(str(escape(kept)).encode("utf-8", "replace")) > most:
        kept = kept[: len(kept) // 2]
    return Excerpt(kept, len(text) - len(kept))


class Texts:
    """Cuts the texts of a page, so that together they stay within a limit.

    Args:
        count: how many there are.
        whole: True to leave them whole.
    """

    def __init__(self, count: int, *, whole: bool = False) -> None:
        self._most = max(_LEAST, _TEXTS // max(1, count))
        self._whole = whole

    def __call__(self, text: str | None, most: int = _TEXTS) -> Excerpt:
        """Return a text, cut; ``most`` bytes of it at most."""
        if text is None:
            return Excerpt("", 0)
        if self._whole:
            return Excerpt(text, 0)
        return excerpt(text, min(most, self._most))


def count_texts(rounds: Iterable[RoundParts]) -> int:
    """Return how many texts the page of an episode shows: those of its parts, and a few more."""
    return 4 + sum(2 * len(played.parts) for played in rounds)


def render(template: str, **values: object) -> str:
    """Return the text of a page."""
    text = _environment().get_template(f"{template}.html.j2").render(values)
    return as_shown(text.lstrip())


def as_shown(text: str) -> str:
    """Return a text as a page holds it: plain ends of lines, and no invisible character."""
    return INVISIBLE.sub("\ufffd", with_plain_lines(text))


def colour_class(ordinal: int | None) -> str:
    """Return the style class of a worker; that of the planner is ``conductor``."""
    return "conductor" if ordinal is None else f"w{min(ordinal, COLOURS)}"


def clipped(text: str, most: int) -> str:
    """Return a name that fits into a box."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


@functools.cache
def static_file(name: str) -> tuple[bytes, str, str]:
    """Return a static file's bytes, its media type and its digest."""
    content = files("openconductor.ui").joinpath("static", name).read_bytes()
    return content, STATIC[name], sha256(content).hexdigest()[:12]


def style_and_hash() -> tuple[str, str]:
    """Return the style sheet and its hash, as a policy of an exported file names it."""
    content, _, _ = static_file("style.css")
    return content.decode(), b64encode(sha256(content).digest()).decode()


def _address(name: str) -> str:
    """Return the address of a static file, which changes with its content."""
    _, _, digest = static_file(name)
    return f"{PREFIX}/{name}?v={digest}"


def _form(value: float | None, form: str) -> str:
    """Return a number as text; "–": unknown."""
    return "–" if value is None else format(value, form)


def _sentence(text: str) -> str:
    """Return a text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def prose(line: str) -> Markup:
    """Return a line of a report as pages write it: percent signs close up, its command is code.

    >>> prose("81 % <b>. To serve it: openconductor serve --from runs/a")
    Markup('81% &lt;b&gt;. To serve it: <code>openconductor serve --from runs/a</code>')
    """
    escaped = str(escape(line.replace(" %", "%")))
    return Markup(_COMMAND.sub(r": <code>\1</code>", escaped))  # noqa: S704 - it is escaped


_FILTERS: dict[str, Any] = {
    "dollars": amounts.dollars_label,
    "price": amounts.price_label,
    "seconds": amounts.seconds_label,
    "moment": amounts.moment_label,
    "counted": counted,
    "colour": colour_class,
    "clipped": clipped,
    "form": _form,
    "sentence": _sentence,
    "prose": prose,
}

_GLOBALS: dict[str, Any] = {"prefix": PREFIX, "address": _address, "node_height": NODE_HEIGHT}


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("openconductor.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(_FILTERS)
    environment.globals.update(_GLOBALS)
    return environment
