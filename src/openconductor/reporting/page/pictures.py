"""Figures as parts of the page: the files' own bytes, as images.

In: the files that ``plots`` wrote. Out: elements. An SVG is shown as an image and not as a part of the page's own tree:
so no script of it can run, no address in it is asked, and its ids cannot meet those of another figure.
"""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from xml.etree import ElementTree as ET

from openconductor.errors import ConfigError, JournalError
from openconductor.plots.sheet import MESSAGE
from openconductor.reporting.page.elements import element

_TYPES = {".svg": "image/svg+xml", ".png": "image/png"}
_SVG = "{http://www.w3.org/2000/svg}"
_ABOUT = "{http://purl.org/dc/elements/1.1/}"


def picture(name: str, file: Path) -> ET.Element:
    """A figure, with its title and caption as its alternative text; one that only says why it is empty, as that text.

    Args:
        name: the figure's.
        file: an SVG or PNG of ``plots``.

    Raises:
        ConfigError: the file is neither, or no whole SVG.
        JournalError: it cannot be read.
    """
    kind = _TYPES.get(file.suffix.lower())
    if kind is None:
        raise ConfigError(f"figure {name}: got {file.name!r}, expected one of {', '.join(_TYPES)}")
    try:
        content = file.read_bytes()
    except OSError as error:
        raise JournalError(f"figure {file}: could not be read: {error.strerror or error}") from error
    words = name.replace("_", " ")
    if kind == "image/svg+xml":
        root = _parsed(name, content)
        title = root.findtext(f"{_SVG}title") or words
        caption = root.findtext(f".//{_ABOUT}description") or ""
        if root.find(f".//*[@id='{MESSAGE}']") is not None:
            return element("p", element("b", f"{title}: "), caption, class_="note")
        words = f"{title}. {caption}".strip()
        content = content[content.index(b"<svg") :]  # without the name of a document type, which is no use here
    address = f"data:{kind};base64,{b64encode(content).decode()}"
    return element("figure", element("img", src=address, alt=words), id=f"figure-{name}")


def _parsed(name: str, content: bytes) -> ET.Element:
    """The root of an SVG, which must declare nothing of its own: entities could be made to grow without end."""
    if b"<!ENTITY" in content:
        raise ConfigError(f"figure {name}: got an SVG with entities, expected one that plots wrote")
    try:
        root = ET.fromstring(content)  # noqa: S314 - entities are refused above
    except ET.ParseError as error:
        raise ConfigError(f"figure {name}: {error}; expected a whole SVG") from error
    if root.tag != f"{_SVG}svg":
        raise ConfigError(f"figure {name}: got <{root.tag}>, expected an SVG")
    return root
