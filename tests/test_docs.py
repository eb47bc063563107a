"""README, docs and docstrings say what is so: their code is run.

Run are the python blocks of a page, top to bottom in one namespace (blocks with ``>>>`` as
doctests, ``await`` allowed in the others), the console blocks' lines that begin with ``$
openconductor`` (they must exit with 0), and the examples in docstrings. A block after a line ``<!--
not run: reason -->`` is only looked at.
"""

from __future__ import annotations

import ast
import asyncio
import doctest
import importlib
import inspect
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if page.is_file()
]
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>.+?) -->\n+)?"
    r"```(?P<language>python|console)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page that is to be run."""

    page: Path
    line: int
    language: str
    code: str


def blocks(page: Path, language: str) -> list[Block]:
    """The page's blocks of one language, but for those that say why they are not run."""
    text = page.read_text("utf-8")
    return [
        Block(page, text.count("\n", 0, match.start("code")), language, match["code"])
        for match in BLOCK.finditer(text)
        if match["language"] == language and match["reason"] is None
    ]


def commands() -> list[object]:
    """Each ``$ openconductor …`` line of a console block, continuation lines joined."""
    return [
        pytest.param(line[2:], id=f"{page.name}:{line[2:]}")
        for page in PAGES
        for block in blocks(page, "console")
        for line in block.code.replace("\\\n", " ").splitlines()
        if line.startswith("$ openconductor")
    ]


def run_python(block: Block, namespace: dict[str, object]) -> None:
    """Execute one block; its lines keep their numbers of the page, so that a failure names them."""
    where = str(block.page.relative_to(ROOT))
    if ">>> " in block.code:
        test = doctest.DocTestParser().get_doctest(block.code, namespace, where, where, block.line)
        report: list[str] = []
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(
            test, out=report.append, clear_globs=False
        )
        assert not report, "".join(report)
        namespace.update(test.globs)
        return
    code = compile(
        "\n" * block.line + block.code, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    )
    result = eval(code, namespace)
    if inspect.iscoroutine(result):
        asyncio.run(result)


@pytest.fixture
def visitor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the recipes, and ``openconductor`` on the path, without any key."""
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    program = tmp_path / "bin" / "openconductor"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom openconductor.cli import main\nsys.exit(main())\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("NO_COLOR", "1")
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_python_blocks_of_a_page_run(page: Path, visitor: Path) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page, "python"):
        run_python(block, namespace)


@pytest.mark.parametrize("command", commands())
def test_a_command_of_a_page_succeeds(command: str, visitor: Path) -> None:
    result = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=visitor,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def modules_with_examples() -> list[str]:
    """The package's modules whose docstrings hold examples."""
    source = ROOT / "src"
    return [
        ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted(source.rglob("*.py"))
        if ">>> " in path.read_text("utf-8")
    ]


@pytest.mark.parametrize("module", modules_with_examples())
def test_the_examples_in_docstrings_are_right(module: str) -> None:
    outcome = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in [*PAGES, ROOT / "AGENTS.md", ROOT / "CHANGELOG.md"]
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not broken, broken
