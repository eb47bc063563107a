"""What `make gpu-smoke` does, without a GPU: it says so; and its trainings, small, on a CPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.gpu_smoke import OVERRIDES, Part, Smoke, write_page
from tests.learning.bases import save_base

pytestmark = pytest.mark.train

ROOT = Path(__file__).parents[2]
SMALL = """
prompt.template=compact
cold_start.batch=2
rollout.iterations=3
rollout.questions=2
rollout.completions=4
rollout.max_tokens=24
start.prompts=4
start.workflows=4
held_out.questions=4
"""


def test_without_a_gpu_it_says_so_and_fails_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu_smoke", "--folder", str(tmp_path / "out")]
    environment = {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "no NVIDIA GPU here" in ended.stderr
    assert not (tmp_path / "out").exists()


def test_the_page_has_a_line_a_training_and_the_reasons_of_failures() -> None:
    parts = [Part("LoRA", seconds=61.0, peak_mib=2048, tokens_a_second=812.34, estimate_gib=3.0)]
    page = write_page([*parts, Part("vLLM", failure="not tried")], {"card": "none"})
    assert "- card: none" in page
    assert "| LoRA | done | 61.0 | 2.0 | 3.0 | 812.3 |" in page
    assert "| vLLM | failed | 0.0 | – | – | – |" in page
    assert "## vLLM\n\n```\nnot tried\n```" in page


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_its_trainings_end_are_killed_and_resumed_and_measured(tmp_path: Path) -> None:
    base = save_base(tmp_path / "base", "qwen2")
    overrides = [*OVERRIDES.split(), *SMALL.split()]
    smoke = Smoke(tmp_path, str(base), lambda: 5.0, overrides)
    plain, killed, vllm = smoke.run()
    for part in (plain, killed):
        assert part.failure == ""
        assert part.peak_mib == 5.0 and (part.tokens_a_second or 0) > 0
        assert part.estimate_gib is not None
    assert "vllm is not installed" in vllm.failure
