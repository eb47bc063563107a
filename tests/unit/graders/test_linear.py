"""The work of finding a program grows with the length of a reply, counted in characters parsed."""

from __future__ import annotations

import pytest

from openconductor.graders.reading import snippet
from openconductor.graders.reading.program import find_program

PATTERNS = {
    "blocks": "```python\nx = 1\n```\n",
    "blocks of functions": "```python\ndef f():\n    return g()\n```\n",
    "broken blocks": "```python\nx = (\n```\n",
    "fences": "```\n",
    "backticks": "`",
    "prose and code": "So:\ndef f():\n    return 1\nIt is so.\n",
    "usage": "```python\nprint(f(1))\n```\n",
}


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize("entry", ["f", "missing", None])
def test_a_reply_of_twice_the_length_takes_at_most_twice_the_parsing(
    pattern: str, entry: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse = snippet._parse
    parsed = 0

    def count(text: str) -> object:
        nonlocal parsed
        parsed += len(text)
        return parse(text)

    monkeypatch.setattr(snippet, "_parse", count)
    work: list[int] = []
    for times in (400, 800):
        parsed = 0
        find_program(pattern * times, entry)
        work.append(parsed)
    assert work[1] <= 2.1 * work[0] + 1000
    assert work[1] <= 8 * len(pattern) * 800
