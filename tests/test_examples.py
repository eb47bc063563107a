"""The scripts in ``examples/`` run as they are shipped, and print what they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LAST_LINES = {
    "ask.py": "3 calls, none with a known price",
    "own_baseline.py": "checked: 1 of 1",
    "own_benchmark.py": "1 of 2 are right",
    "own_worker.py": "asked twice, called once",
}


@pytest.mark.parametrize("name", LAST_LINES)
def test_an_example_runs_as_it_is_shipped(name: str, root: Path, tmp_path: Path) -> None:
    command = [sys.executable, root / "examples" / name]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == LAST_LINES[name]


def test_every_example_is_run(root: Path) -> None:
    assert {path.name for path in (root / "examples").glob("*.py")} == LAST_LINES.keys()
