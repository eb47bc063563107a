"""Decides which blocks of a reply are the program.

Of the blocks that are Python, those count that define the entry point. For programs over standard
input those count that do something, and rather those that read it. The last one is taken; a stub is
not taken where there is a whole definition. Names that it lacks are looked up in the other blocks,
which are put before it, so that a program that a reply builds step by step is joined. Blocks of
usage and of tests are left out, and so are statements that only show what the program does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from openconductor.graders.reading.blocks import (
    Block,
    code_between,
    find_blocks,
    session_code,
    strings_in_json,
    unescape,
)
from openconductor.graders.reading.snippet import (
    Snippet,
    acts,
    ends,
    is_complete,
    is_test,
    lines_of,
    read_snippet,
    reads_input,
    without_usage,
)

LONGEST = 300_000
"""Characters of all blocks together that are looked at, from the end of a reply."""
MOST = 100
"""Blocks that are looked at, from the end of a reply."""
PIECES = 20
"""Blocks that may be pieces of one definition, or programs over standard input."""
MARKDOWN = "markdown"
FUTURE = re.compile(r"^from[ \t]+__future__[ \t]+import[^\n]*\n?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Program:
    """A program, and where it stood in a reply.

    Attributes:
        text: the program.
        taken: where it stood; "": it is the only block.
    """

    text: str
    taken: str = ""


def find_program(reply: str, entry: str | None) -> Program | None:
    """Return the program of a reply; None: it has none.

    Args:
        reply: the reply without thoughts.
        entry: the function under test, as in CodeTests; None: a program over standard input.
    """
    fenced, outside = find_blocks(reply)
    if not fenced:
        fenced = [Block(text, MARKDOWN) for text in strings_in_json(reply)]
    blocks = [inner for block in fenced[-MOST:] for inner in _opened(block)]
    return _Choice(blocks, outside, entry).make()


def _opened(block: Block) -> list[Block]:
    """Return the blocks inside of a block: without the dress of Markdown, JSON or a session."""
    if block.language in {MARKDOWN, "md"}:
        inner, _ = find_blocks(block.text)
        return inner or [Block(block.text)]
    texts = list(strings_in_json(block.text))
    if texts:
        return [inner for text in texts for inner in _opened(Block(text, MARKDOWN))]
    text = unescape(block.text)
    if block.text.lstrip().startswith(">>>"):
        text = session_code(block.text) or text
    if text and read_snippet(block.text) is None:
        return [Block(text)]
    return [block]


class _Choice:
    """Chooses among the blocks of one reply."""

    def __init__(self, blocks: Sequence[Block], outside: str, entry: str | None) -> None:
        self._blocks = blocks
        self._outside = outside
        self._entry = entry
        self._snippets: list[Snippet] = []
        left = LONGEST
        for place, block in reversed(list(enumerate(blocks, start=1))[-MOST:]):
            left -= len(block.text)
            # A wrong name of the language is forgiven where the function itself is there.
            if left >= 0 and (block.python or entry is not None):
                snippet = read_snippet(block.text, place)
                if snippet is not None:
                    self._snippets.insert(0, snippet)

    def make(self) -> Program | None:
        """Return the program; None: there is none."""
        candidates = self._candidates(self._snippets) or self._recovered()
        programs = [self._join(snippet) for snippet in candidates[-PIECES:]]
        if not programs:
            return self._last_block()
        if self._entry is None and len(programs) > 1:
            for program in reversed(programs):
                snippet = read_snippet(program.text)
                if snippet is not None and reads_input(snippet):
                    return program
        return programs[-1]

    def _candidates(self, snippets: Sequence[Snippet]) -> list[Snippet]:
        """Return the snippets that may be the program, the best one last."""
        if self._entry is None:
            return [snippet for snippet in snippets if acts(snippet) and not self._tries(snippet)]
        defining: list[Snippet] = []
        whole: list[Snippet] = []
        for snippet in snippets:
            definition = snippet.definition(self._entry)
            if definition is not None:
                defining.append(snippet)
                if is_complete(definition):
                    whole.append(snippet)
        return (whole or defining)[-1:]

    def _tries(self, snippet: Snippet) -> bool:
        """Return True if a snippet is a test, or an excerpt of an earlier one."""
        earlier = [other for other in self._snippets if other.place < snippet.place]
        return is_test(snippet) or any(snippet.lines <= other.lines for other in earlier)

    def _recovered(self) -> list[Snippet]:
        """Return a snippet made of what no block holds by itself; [] if there is none.

        These are tried in turn: all blocks together (pieces of one program), the code in blocks
        that have prose behind it, and the code that stands in no block.
        """
        texts = [block.text for block in self._blocks[-MOST:] if block.python]
        broken = [text for text in texts if read_snippet(text) is None]
        tries = ["".join(texts), *map(code_between, reversed(broken)), self._outside]
        tries += [session_code(self._outside), code_between(self._outside)]
        for text in tries:
            snippet = read_snippet(text)
            if snippet is not None and self._candidates([snippet]):
                return [snippet]
        return []

    def _join(self, chosen: Snippet) -> Program:
        """Return the program of a snippet and of the snippets that it builds on."""
        chosen, places = self._continue(chosen)
        parts = [*self._needed(chosen), chosen]
        texts = [without_usage(part, self._entry, parts) for part in parts]
        if self._entry is None:
            texts[-1] = chosen.text
        text = "".join(texts)
        if len(parts) > 1:
            text = "".join(FUTURE.findall(text)) + FUTURE.sub("\n", text)
        return Program(text, self._taken({*places, *(part.place for part in parts)}))

    def _taken(self, places: set[int]) -> str:
        """Return a text that says which blocks were taken; "": the only one, or there is none."""
        if places == {0} and self._blocks:
            return "code of no block"
        if len(self._blocks) < 2:
            return ""
        noun = "block" if len(places) == 1 else "blocks"
        listed = ", ".join(str(place) for place in sorted(places) if place)
        return f"{noun} {listed} of {len(self._blocks)}"

    def _continue(self, chosen: Snippet) -> tuple[Snippet, list[int]]:
        """Return a snippet with the blocks that go on where it ends, inside its last definition.

        Such a block is indented, and no excerpt of the snippet.
        """
        pieces: list[int] = []
        behind = self._blocks[chosen.place :] if chosen.place else ()
        for place, block in enumerate(behind[:PIECES], start=chosen.place + 1):
            indented = block.python and block.text.startswith((" ", "\t"))
            excerpt = lines_of(block.text) <= chosen.lines
            if not indented or excerpt or ends(chosen.tree.body[-1]):
                break
            longer = read_snippet(chosen.text.rstrip("\n") + "\n" + block.text, chosen.place)
            if longer is None or len(longer.tree.body) > len(chosen.tree.body):
                break
            chosen = longer
            pieces.append(place)
        return chosen, pieces

    def _needed(self, chosen: Snippet) -> list[Snippet]:
        """Return the other snippets that define what a snippet lacks, in their order.

        The nearest one before it counts, else the first one behind it that does not use it.
        """
        needed: dict[int, Snippet] = {}
        before = [snippet for snippet in self._snippets if snippet.place < chosen.place]
        behind = [snippet for snippet in self._snippets if snippet.place > chosen.place]
        nearest = [*reversed(before), *(snippet for snippet in behind if not self._uses(snippet))]
        waiting = sorted(chosen.names.lacking) if nearest else []
        while waiting:
            name = waiting.pop()
            for snippet in nearest:
                if name in snippet.names.bound:
                    if snippet.place not in needed:
                        needed[snippet.place] = snippet
                        waiting += sorted(snippet.names.lacking)
                    break
        return [needed[place] for place in sorted(needed)]

    def _uses(self, snippet: Snippet) -> bool:
        """Return True if a snippet is usage or a test of the entry point."""
        method = (self._entry or "").rpartition(".")[2]
        return is_test(snippet) or method in snippet.names.lacking or "assert" in snippet.text

    def _last_block(self) -> Program | None:
        """Return the last block that may be Python, right or wrong."""
        for place in range(len(self._blocks), 0, -1):
            block = self._blocks[place - 1]
            if block.python:
                return Program(block.text, self._taken({place}))
        return None
