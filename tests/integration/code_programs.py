"""Reads the programs that tests of the code grader run, from ``programs/*.md``."""

from __future__ import annotations

import re
from pathlib import Path

SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
PROGRAM = re.compile(r"^### ([^\n]+)\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INCLUDE = re.compile(r"^# ?include (\w+)$", re.MULTILINE)


def read_programs(name: str) -> dict[str, dict[str, str]]:
    """Return programs by their section and name; fragments are put in."""
    text = Path(__file__).with_name("programs").joinpath(f"{name}.md").read_text("utf-8")
    _, *parts = SECTION.split(text)
    sections = {
        title: dict(PROGRAM.findall(body))
        for title, body in zip(parts[::2], parts[1::2], strict=True)
    }
    fragments = sections.get("Fragments", {})
    for programs in sections.values():
        for title, program in programs.items():
            programs[title] = INCLUDE.sub(lambda line: fragments[line[1]], program)
    return sections
