"""One training in small on an NVIDIA GPU, in ten minutes, and a page about it to send us.

    make gpu-smoke
    python -m benchmarks.gpu_smoke [--folder runs/gpu-smoke] [--base MODEL]

One H100 has run it, without vLLM (docs/log.md). The script trains adapters over the gym's simulated
workers (no key, no network, no money) by recipes/open_small.toml, with random weights of
Qwen2.5-0.5B's shape unless ``--base`` names a model: sampling by transformers, then a kill and a
resumption, then sampling by vLLM in the same process where vLLM is installed. ``page.md`` has
the peak memory and the tokens a second beside the estimates of ``train --dry-run``. Without a GPU
it exits with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "recipes" / "open_small.toml"
LIMIT_S = 590.0  # of everything
POLL_S = 0.5
QWEN_05B = {
    "vocab_size": 151936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
}
# The gym's workers answer at once. Random weights write no plan, so completions have full length.
OVERRIDES = """
pool=gym
data.task=gym
cold_start.shapes=false
cold_start.steps=4
start.prompts=16
start.workflows=16
start.validity=0.0
rollout.iterations=4
rollout.max_tokens=128
held_out.questions=16
save_every=1
"""
FIELDS = "name,memory.total,memory.used,driver_version"


@dataclass
class Part:
    """What came of a training.

    Attributes:
        failure: why it failed; "": it did not.
        seconds: of wall time.
        peak_mib: the most memory in use on the card, of all processes; None: unknown.
        tokens_a_second: sampled in an iteration of GRPO, learning included.
    """

    name: str
    failure: str = ""
    seconds: float = 0.0
    peak_mib: float | None = None
    tokens_a_second: float | None = None
    estimate_gib: float | None = None


@dataclass
class Smoke:
    """The trainings of one page, in a folder.

    Attributes:
        folder: gets a folder for each training.
        base: the model.
        read_memory: returns the MiB in use on the card; None: unknown.
        overrides: of the recipe.
        ends: when everything has to be done, by ``time.monotonic``.
    """

    folder: Path
    base: str
    read_memory: Callable[[], float | None]
    overrides: Sequence[str]
    ends: float = field(default_factory=lambda: time.monotonic() + LIMIT_S)

    def run(self) -> list[Part]:
        """Run all trainings; a failure of one does not end the others."""
        parts = [
            self.part("LoRA, sampled by transformers", "lora"),
            self.part("killed in an iteration, then resumed", "killed", kill=True),
        ]
        name = "LoRA, sampled by vLLM in the same process"
        if find_spec("vllm") is None:
            install = 'pip install "openconductor[vllm]"'
            return [*parts, Part(name, failure=f"not tried: vllm is not installed ({install})")]
        return [*parts, self.part(name, "vllm", "rollout.engine=vllm")]

    def part(self, name: str, run: str, *overrides: str, kill: bool = False) -> Part:
        """Train once, and measure; with ``kill`` the first process is killed on its way."""
        part = Part(name)
        out = self.folder / run
        arguments = ["train", str(RECIPE), f"model.base={self.base}", *self.overrides, *overrides]
        started = time.monotonic()
        try:
            part.estimate_gib = self._estimate(arguments)
            with self._watched(part):
                if kill:
                    self._kill_in_an_iteration([*arguments, "--out", str(out)], out)
                    self._finish([*arguments, "--out", str(out), "--resume"], out)
                else:
                    self._finish([*arguments, "--out", str(out)], out)
            part.tokens_a_second = _measure_speed(out)
        except _Failure as error:
            part.failure = str(error)
        part.seconds = time.monotonic() - started
        return part

    def _estimate(self, arguments: Sequence[str]) -> float | None:
        """Return the GiB that a dry run expects on one card."""
        command = [*arguments, "--dry-run", "--offline", "--json"]
        ended = subprocess.run(
            _command(command), capture_output=True, text=True, timeout=self._left(), check=False
        )
        if ended.returncode:
            raise _Failure(f"train --dry-run: {ended.stderr[-500:]}{ended.stdout[-500:]}")
        memory = json.loads(ended.stdout).get("memory", {})
        return memory["1"]["peak"] if memory else None

    def _finish(self, arguments: Sequence[str], out: Path) -> None:
        log = out.with_suffix(".log")
        with _started(arguments, log) as process:
            try:
                code = process.wait(self._left())
            except subprocess.TimeoutExpired as error:
                raise _Failure(f"not done after {LIMIT_S:.0f} s of everything") from error
        if code:
            raise _Failure(f"exit code {code}: {_tail(log)}")

    def _kill_in_an_iteration(self, arguments: Sequence[str], out: Path) -> None:
        log = out.with_suffix(".log")
        with _started(arguments, log) as process:
            while len(_curve(out)) < 2:
                if process.poll() is not None or self._left() <= 0:
                    raise _Failure(f"ended before it could be killed: {_tail(log)}")
                time.sleep(POLL_S)
            os.killpg(process.pid, signal.SIGKILL)

    @contextmanager
    def _watched(self, part: Part) -> Generator[None]:
        """Note the most memory in use while the block runs."""
        done = threading.Event()

        def watch() -> None:
            while not done.wait(POLL_S):
                used = self.read_memory()
                if used is not None:
                    part.peak_mib = max(used, part.peak_mib or 0.0)

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _left(self) -> float:
        return max(0.0, self.ends - time.monotonic())


class _Failure(Exception):
    """A training that did not end as it should; the message says why."""


def _command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "openconductor", *arguments]


@contextmanager
def _started(arguments: Sequence[str], log: Path) -> Generator[subprocess.Popen[bytes]]:
    """Start a command in a process group of its own, which ends with the block."""
    with log.open("ab") as stream:
        process = subprocess.Popen(
            _command(arguments), stdout=stream, stderr=stream, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _tail(log: Path) -> str:
    return log.read_text("utf-8", "replace")[-1500:].strip()


def _curve(out: Path) -> list[dict[str, Any]]:
    """Return the records of the iterations so far."""
    path = out / "curves.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    return [json.loads(line) for line in lines]


def _measure_speed(out: Path) -> float:
    """Return the tokens a second of the iterations but for the first, which warms up."""
    speeds: list[float] = []
    for record in _curve(out)[1:]:
        speeds.append(record["rollouts"] * record["completion_tokens"] / record["seconds"])
    return fmean(speeds)


# ── the page ──────────────────────────────────────────────────────────────────────────────────────
def write_page(parts: Sequence[Part], machine: Mapping[str, str]) -> str:
    """Return the page."""
    lines = ["# OpenConductor on a GPU", ""]
    lines += [f"- {name}: {value}" for name, value in machine.items()]
    lines += ["", "| training | result | wall s | peak GiB | estimated GiB | tokens/s |"]
    lines.append("|---|---|---|---|---|---|")
    for part in parts:
        result = "failed" if part.failure else "done"
        peak = None if part.peak_mib is None else part.peak_mib / 1024
        figures = (part.seconds, peak, part.estimate_gib, part.tokens_a_second)
        cells = ["–" if figure is None else f"{figure:.1f}" for figure in figures]
        lines.append(f"| {part.name} | {result} | {' | '.join(cells)} |")
    lines += ["", "The peak is of the whole card, other programs included. Tokens are those of"]
    lines.append("completions, and the seconds those of whole iterations, learning included.")
    for part in parts:
        if part.failure:
            lines += ["", f"## {part.name}", "", "```", part.failure, "```"]
    return "\n".join([*lines, ""])


def _ask_card() -> dict[str, str] | None:
    """Return what nvidia-smi says of the first card; None: there is none."""
    if shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if ended.returncode or not ended.stdout.strip():
        return None
    values = [value.strip() for value in ended.stdout.splitlines()[0].split(",")]
    return dict(zip(FIELDS.split(","), values, strict=True))


def _memory_used() -> float | None:
    card = _ask_card()
    return None if card is None else float(card["memory.used"])


def save_random_base(folder: Path, shape: Mapping[str, int]) -> Path:
    """Write a random instruct model of a shape; its tokenizer was trained on our prompts."""
    sys.path.insert(0, str(ROOT))
    from tests.learning.bases import save_base

    return save_base(folder, "qwen2", shape=shape)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("runs/gpu-smoke"), help="is emptied")
    parser.add_argument("--base", default="", help="a model (default: random weights, 0.5 B)")
    options = parser.parse_args()
    card = _ask_card()
    if card is None:
        print("gpu-smoke: no NVIDIA GPU here (nvidia-smi names none)", file=sys.stderr)
        return 1
    import torch

    if not torch.cuda.is_available():
        print(f"gpu-smoke: torch {torch.__version__} cannot use the {card['name']}; install "
              "torch for CUDA", file=sys.stderr)  # fmt: skip
        return 1
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    base = options.base or str(save_random_base(options.folder / "base", QWEN_05B))
    parts = Smoke(options.folder, base, _memory_used, OVERRIDES.split()).run()
    machine = {
        "card": f"{card['name']}, {card['memory.total']} MiB, driver {card['driver_version']}",
        "software": f"Python {platform.python_version()}, torch {torch.__version__}",
        "model": options.base or "random weights of Qwen2.5-0.5B's shape",
    }
    page = write_page(parts, machine)
    (options.folder / "page.md").write_text(page, "utf-8")
    print(page)
    print(f"Please send us {options.folder / 'page.md'}: open an issue with it.")
    return int(any(part.failure for part in parts))


if __name__ == "__main__":
    raise SystemExit(main())
