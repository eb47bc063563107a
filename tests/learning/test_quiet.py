"""A training prints its own lines, and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.learning.runs import COLD_START

pytestmark = [pytest.mark.train, pytest.mark.timeout(120)]

OURS = re.compile(r"run folder: |start: accuracy |iteration \d+ of |warning: iteration ")
SHORT = """
cold_start.steps=0
imitate.rounds=0
held_out.questions=4
start.prompts=4
start.workflows=4
rollout.iterations=1
rollout.questions=4
rollout.completions=4
"""


def test_a_short_training_prints_its_own_lines_alone(root: Path, tmp_path: Path) -> None:
    recipe = root / "recipes" / "gym.toml"
    command = [sys.executable, "-m", "openconductor", "train", str(recipe), *SHORT.split()]
    command += [f"model.base={COLD_START.as_posix()}", "--out", str(tmp_path / "run")]
    finished = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    told, _, following = finished.stderr.partition("\nNext: ")
    lines = re.split(r"[\r\n]+", told.strip())
    assert [line for line in lines if not OURS.match(line)] == []
    assert len(lines) == 3
    for verb in ("report", "ask", "export"):
        assert f"\n  openconductor {verb} " in following
    assert str(tmp_path / "run") in following
    assert "learnt, greedy" in finished.stdout
