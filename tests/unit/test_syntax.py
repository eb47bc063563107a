"""Tests of parsing in several threads at once."""

import ast
import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import openconductor
from openconductor.syntax import parse_expression, parse_program

ASSIGNMENTS = "\n".join(f"y = [({number}, x), {{'a': [x, {number}]}}]" for number in range(300))


@pytest.fixture
def collector_lets_threads_in() -> Iterator[None]:
    """Let other threads run whenever the collector does, also amid the building of a tree."""

    def give_way(phase: str, info: dict[str, int]) -> None:
        time.sleep(0)

    thresholds = gc.get_threshold()
    gc.callbacks.append(give_way)
    gc.set_threshold(50, 5, 5)
    yield
    gc.set_threshold(*thresholds)
    gc.callbacks.remove(give_way)


def parse_at_depth(depth: int) -> int:
    if depth:
        return parse_at_depth(depth - 1)
    return sum(len(parse_program(ASSIGNMENTS).body) for _ in range(3))


@pytest.mark.usefixtures("collector_lets_threads_in")
def test_threads_parse_programs_at_once() -> None:
    with ThreadPoolExecutor(4) as pool:
        parsed = list(pool.map(parse_at_depth, [0, 20, 40, 60]))

    assert parsed == [3 * 300] * 4


def test_an_expression_is_its_tree_alone() -> None:
    assert ast.literal_eval(parse_expression("[1, 2]")) == [1, 2]


def test_nothing_else_in_the_package_parses_python() -> None:
    package = Path(openconductor.__file__).parent
    sources = [path for path in package.rglob("*.py") if path.parent.name != "drivers"]

    parsing = {path.name for path in sources if "ast.parse(" in path.read_text("utf-8")}

    assert parsing == {"syntax.py"}
