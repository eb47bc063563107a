"""HTML as a tree of elements: what is put in as text stays text, whatever letters it has.

In: tags, attributes, texts. Out: Elements, and the markup of a whole document. Nothing here takes markup as a string,
so there is no place where escaping could be forgotten.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from xml.etree.ElementTree import Element, tostring

Child = Element | str
"""What stands inside an element: another one, or text."""


def element(tag: str, *children: Child | None, **attributes: str | None) -> Element:
    """An element with children; None among children and attributes is left out.

    Args:
        tag: its name.
        children: in order.
        attributes: underscores within a name are hyphens, one at its end is nothing (``class_``, ``aria_label``).

    >>> markup(element("p", "a < b", class_="note"))
    '<p class="note">a &lt; b</p>'
    """
    made = Element(
        tag,
        {name.rstrip("_").replace("_", "-"): clean(text) for name, text in attributes.items() if text is not None},
    )
    return extend(made, *children)


def extend(parent: Element, *children: Child | None) -> Element:
    """Put children at the end of an element, which is returned."""
    for child in children:
        if child is None:
            continue
        if isinstance(child, str):
            last = parent[-1] if len(parent) else None
            if last is None:
                parent.text = (parent.text or "") + clean(child)
            else:
                last.tail = (last.tail or "") + clean(child)
        else:
            parent.append(child)
    return parent


def paragraphs(lines: Iterable[str]) -> list[Element]:
    """Each line as a paragraph."""
    return [element("p", line) for line in lines]


def markup(root: Element) -> str:
    """The element as HTML."""
    return tostring(root, encoding="unicode", method="html")


def clean(text: str) -> str:
    r"""The text without what no HTML may hold: control characters and lone surrogates become U+FFFD.

    >>> clean("a\x00b\nc")
    'a\ufffdb\nc'
    """
    return "".join(one if one in "\n\t" or unicodedata.category(one) not in ("Cc", "Cs") else "�" for one in text)
