"""Finds the blocks of code in a reply: fences of any dress, code between prose, code inside JSON.

All of it takes time linear in the length of the reply.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from openconductor.graders.reading.snippet import LONGEST, is_code

NAMED = {"py", "python", "python3", "python2", "py3", "pypy", "pypy3", "ipython", "pycon"}
PYTHON = NAMED | {""}
MARKS = ("```", "~~~")

# What may stand before a fence: quotes, and the mark of a list's item.
_PREFIX = re.compile(r"[ \t]*(?:>[ \t]?)*[ \t]*(?:(?:[-*+]|\d{1,3}[.)])[ \t]+)?[ \t]*")
_QUOTE = re.compile(r"[ \t]{0,3}(?:>[ \t]?)+")
_LANGUAGE = re.compile(r"[\w+#-]+")
_STARTS_CODE = re.compile(
    r"(?:async[ ]+def|def|class|import|from|for|while|if|try|with)\b|@\w|print\(|assert\b"
    r"|[A-Za-z_][\w., \[\]]{0,80}=[^=]"
)
_GOES_ON = re.compile(r"(?:else|elif|except|finally|case)\b|[)\]}#]")
_ESCAPE = re.compile(r"\\([nt\"'\\])")
_ESCAPED = {"n": "\n", "t": "\t"}


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code.

    Attributes:
        text: its lines, without the indentation of its fence.
        language: the name behind its fence, in lower case; "": none.
    """

    text: str
    language: str = ""

    @property
    def python(self) -> bool:
        """True if the block is said to be Python, or not said to be anything."""
        return self.language in PYTHON


@dataclass(slots=True)
class _Open:
    """A block whose end has not been found yet."""

    mark: str
    length: int
    indent: int
    quoted: bool
    language: str
    lines: list[str]

    def add(self, line: str) -> None:
        if self.quoted:
            line = _QUOTE.sub("", line, count=1)
        blanks = len(line) - len(line.lstrip(" \t"))
        self.lines.append(line[min(blanks, self.indent) :])

    def close(self) -> Block:
        return Block("".join(f"{line}\n" for line in self.lines), self.language)


def find_blocks(reply: str) -> tuple[list[Block], str]:
    r"""Return the fenced blocks of a reply that are not blank, and all text outside of fences.

    >>> find_blocks("So:\n```py\nx = 1\n```\nDone.")
    ([Block(text='x = 1\n', language='py')], 'So:\nDone.')
    """
    blocks: list[Block] = []
    outside: list[str] = []
    block: _Open | None = None
    for line in reply.replace("\r\n", "\n").split("\n"):
        if block is None:
            block = _open(line, blocks)
            if block is None:
                outside.append(line)
            continue
        rest = line.strip(" \t>")
        length = _run_length(rest, block.mark)
        if length >= block.length:
            info = rest[length:].strip()
            blocks.append(block.close())
            block = _open(line, blocks) if _names_language(info) else None
        elif _ends_with_fence(line, block):
            block.add(line.rstrip()[: -block.length])
            blocks.append(block.close())
            block = None
        else:
            block.add(line)
    if block is not None:
        blocks.append(Block("\n".join(block.lines), block.language))
    return [block for block in blocks if block.text.strip()], "\n".join(outside)


def _open(line: str, blocks: list[Block]) -> _Open | None:
    """Return the block that a line opens; one that ends in the same line is added to ``blocks``."""
    mark = next((mark for mark in MARKS if mark in line), None)
    if mark is None:
        return None
    before = line[: line.index(mark)]
    rest = line[len(before) :]
    length = _run_length(rest, mark)
    info = rest[length:]
    language = _language(info)
    named = language in NAMED
    alone = _PREFIX.fullmatch(before)
    if mark in info:
        code = info[: info.index(mark)]
        if named:
            code = code.strip()[len(language) :]
        if alone:
            blocks.append(Block(code.strip(" ") + "\n"))
        return None
    if not alone and (mark != "```" or not named):
        return None
    quoted = ">" in before
    indent = len(before) if alone and not quoted else 0
    return _Open(mark[0], length, indent, quoted, language, [])


def _run_length(text: str, mark: str) -> int:
    """Return how often a text repeats the character of a mark at its start."""
    return len(text) - len(text.lstrip(mark[0]))


def _language(info: str) -> str:
    name = _LANGUAGE.match(info.strip(" \t{.="))
    return name[0].lower() if name else ""


def _names_language(info: str) -> bool:
    """Return True if the text behind a fence names a language, so that the fence opens a block."""
    return bool(info) and (_language(info) in NAMED or info.isalnum())


def _ends_with_fence(line: str, block: _Open) -> bool:
    """Return True if the last line of a block has its fence behind it."""
    fence = block.mark * block.length
    return block.mark == "`" and line.rstrip().endswith(fence) and line.count(fence) == 1


def code_between(text: str) -> str:
    """Return what looks like statements of code between the lines of prose of a text.

    A statement begins with a line that looks like code, and has all lines behind it that are
    indented more. Statements that are not Python are left out.
    """
    pieces: list[str] = []
    lines: list[str] = []
    indent = 0
    for line in [*text[:LONGEST].split("\n"), "."]:
        stripped = line.lstrip(" \t")
        blanks = len(line) - len(stripped)
        inside = not stripped or blanks > indent
        decorated = bool(lines) and lines[-1].lstrip().startswith("@")
        goes_on = blanks == indent and _GOES_ON.match(stripped)
        if lines and (inside or decorated or goes_on):
            lines.append(line)
            continue
        if lines:
            pieces.append(textwrap.dedent("\n".join(lines)).rstrip() + "\n")
        lines = []
        if _STARTS_CODE.match(stripped):
            lines, indent = [line], blanks
    return "".join(filter(is_code, pieces))


def strings_in_json(text: str) -> Iterator[str]:
    """Yield the texts of several lines in a reply that is JSON."""
    text = text.strip()
    if not text.startswith(("{", "[", '"')):
        return
    try:
        values: list[object] = [json.loads(text, strict=False)]
    except (ValueError, RecursionError):
        return
    while values:
        value = values.pop()
        if isinstance(value, str) and ("\n" in value or _STARTS_CODE.match(value)):
            yield value
        elif isinstance(value, dict):
            values += reversed(list(cast("dict[str, object]", value).values()))
        elif isinstance(value, list):
            values += reversed(cast("list[object]", value))


def unescape(text: str) -> str | None:
    r"""Return the lines of a text in which all line ends are written ``\n``; None: it has none."""
    if "\\n" not in text or "\n" in text.strip():
        return None
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), text.strip().strip('"'))


def session_code(text: str) -> str:
    """Return the code of the interactive session (``>>>``) in a text; "": there is none."""
    lines = [line.lstrip() for line in text.split("\n")]
    return "".join(f"{line[4:]}\n" for line in lines if line.startswith((">>> ", "... ")))
