"""What a training says, and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from openconductor.gym.bundled import bundled_folder

pytestmark = [pytest.mark.train, pytest.mark.timeout(120)]

OURS = re.compile(r"run folder: |start: accuracy |iteration \d+ of |warning: iteration ")


def test_a_short_training_prints_its_own_lines_alone(root: Path, tmp_path: Path) -> None:
    overrides = [
        "cold_start.steps=0",
        "imitate.rounds=0",
        "held_out.questions=4",
        "start.prompts=4",
        "start.workflows=4",
    ]
    overrides += ["rollout.iterations=1", "rollout.questions=4", "rollout.completions=4"]
    command = [sys.executable, "-m", "openconductor", "train", str(root / "recipes" / "gym.toml")]
    ran = subprocess.run(
        [
            *command,
            f"model.base={bundled_folder().as_posix()}",
            *overrides,
            "--out",
            str(tmp_path / "run"),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    lines = re.split(r"[\r\n]+", ran.stderr.strip())
    assert [line for line in lines if not OURS.match(line)] == []
    assert len(lines) == 3
    assert "learnt, greedy" in ran.stdout
