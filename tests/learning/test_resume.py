"""A training that is killed and resumed ends like one that was left alone."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.learning.runs import COLD_START, curve, measured, recipe, start, weights

from openconductor.errors import ConfigError, JournalError, TrainingStopped
from openconductor.training import curves, imitation, run
from openconductor.training.train_config import TrainConfig, dump_train_config

pytestmark = [pytest.mark.train, pytest.mark.timeout(600)]


def interrupt(*_: object, **__: object) -> None:
    raise InterruptedError


# ── killed from outside ───────────────────────────────────────────────────────────────────────────
# One kind of question, because another would be so seldom right that it is lost.
SHORT = """
seed = 3
save_every = 2
data = { task = "gym", mix = [1.0, 0.0, 0.0, 0.0] }
imitate.rounds = 3
imitate.questions = 16
imitate.steps = 4
imitate.batch = 16
imitate.micro_batch = 16
imitate.learning_rate = 1e-3
prompt = { template = "compact", access = "index" }
rollout = { iterations = 6, questions = 4, completions = 4, max_tokens = 72 }
optim = { learning_rate = 1e-3, micro_batch = 16, bf16 = false }
start = { prompts = 20, workflows = 20 }
held_out = { questions = 40 }
"""


def finish(training: subprocess.Popen[bytes]) -> None:
    _, messages = training.communicate(timeout=300)
    assert training.returncode == 0, messages.decode()


def left_alone(recipe_file: Path) -> Path:
    folder = recipe_file.with_name("left-alone")
    finish(start(recipe_file, folder))
    return folder


def killed_and_resumed(recipe_file: Path, records: int) -> Path:
    """Kill a run once its curve has this number of records, and resume it."""
    folder = recipe_file.with_name(f"killed-at-{records}")
    training = start(recipe_file, folder)
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and training.poll() is None:
        with suppress(FileNotFoundError):
            if (folder / "curves.jsonl").read_text("utf-8").count("\n") >= records:
                break
        time.sleep(0.005)
    training.send_signal(signal.SIGKILL)
    training.communicate()
    assert training.returncode == -signal.SIGKILL
    assert not (folder / "results.json").exists()
    assert (folder / "imitated").is_dir() == (records > 3)
    finish(start(recipe_file, folder, "--resume"))
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Path]]]:
    """One recipe, two at a time: left alone, killed in imitation, killed in GRPO.

    Each is killed after a whole round or checkpoint (every 2 iterations), and one outside it.
    """
    recipe_file = tmp_path_factory.mktemp("runs") / "short.toml"
    recipe_file.write_text(dump_train_config(recipe(SHORT)), "utf-8")
    with ThreadPoolExecutor(2) as pool:
        yield {
            "whole": pool.submit(left_alone, recipe_file),
            "imitation": pool.submit(killed_and_resumed, recipe_file, 2),
            "grpo": pool.submit(killed_and_resumed, recipe_file, 6),
        }


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["imitation", "grpo"])
def test_a_training_killed_in_the_middle_resumes_to_the_same_curve(
    runs: dict[str, Future[Path]], phase: str
) -> None:
    whole, cut = runs["whole"].result(), runs[phase].result()
    records = curve(whole)
    assert [record["iteration"] for record in records] == list(range(9))
    assert curve(cut) == records
    assert measured(cut) == measured(whole)
    assert weights(cut / "conductor") == weights(whole / "conductor")
    learning = [record for record in records if record["groups_without_spread"] < 1]
    assert len(learning) >= 5, "there was something to learn from"
    assert weights(whole / "conductor") != weights(COLD_START)


# ── the cold start ────────────────────────────────────────────────────────────────────────────────
@pytest.mark.slow
def test_a_cold_start_that_was_cut_off_goes_on_to_the_same_weights(
    tiny: TrainConfig, tmp_path: Path
) -> None:
    def stop(line: str) -> None:
        if line.startswith("cold start: step 7 "):
            raise InterruptedError

    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run.train(tiny, whole)
    with pytest.raises(InterruptedError):
        run.train(tiny, cut, on_progress=stop)
    assert not (cut / "cold_start").exists()
    lines: list[str] = []
    run.train(tiny, cut, resume=True, on_progress=lines.append)
    assert not any(line.startswith("cold start: step 2 ") for line in lines), (
        "it did not begin anew"
    )
    assert weights(cut / "cold_start") == weights(whole / "cold_start")
    assert not (cut / "cold_start_checkpoints").exists()


def test_a_cold_start_that_was_saved_is_not_made_again(
    tiny: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(run, "_measure_start", interrupt)  # right behind the cold start
        with pytest.raises(InterruptedError):
            run.train(tiny, folder)
    saved = weights(folder / "cold_start")
    cold_start, *others = run.PHASES
    phases = [replace(cold_start, run=interrupt), *others]
    run.train(tiny, folder, resume=True, phases=phases)
    assert weights(folder / "cold_start") == saved


# ── imitation ─────────────────────────────────────────────────────────────────────────────────────
IMITATION = """
seed = 3
save_every = 2
imitate.rounds = 6
imitate.sharpen = 2
imitate.questions = 8
imitate.steps = 2
imitate.batch = 4
imitate.micro_batch = 4
imitate.explore = 2.0
imitate.remember = 2
prompt = { template = "compact", access = "index" }
rollout = { iterations = 0, questions = 4, completions = 4, max_tokens = 72 }
optim = { learning_rate = 1e-3, micro_batch = 16, bf16 = false }
start = { prompts = 8, workflows = 8 }
held_out = { questions = 8 }
"""
RECURSION = IMITATION.replace("iterations = 0", "rounds = 2, iterations = 2").replace(
    "rounds = 6\nimitate.sharpen = 2\nimitate.questions = 8", "rounds = 2\nimitate.questions = 16"
)


def test_imitation_that_had_ended_early_plays_no_further_round_when_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = recipe(IMITATION.replace("imitate.sharpen = 2\n", ""))
    monkeypatch.setattr(imitation, "is_settled", lambda records: len(records) >= 2)
    with monkeypatch.context() as patched:
        patched.setattr(run, "save_trained", interrupt)  # right behind the last round
        with pytest.raises(InterruptedError):
            run.train(config, tmp_path / "run")
    before = curve(tmp_path / "run")
    run.train(config, tmp_path / "run", resume=True)
    assert [record["iteration"] for record in before] == [0, 1]
    assert curve(tmp_path / "run") == before


class Cut:
    """Samples for imitation, and is interrupted the fourth time."""

    def __init__(self) -> None:
        self.explored: list[float] = []
        self.second_rounds: list[int] = []
        self.complete = imitation.complete

    def __call__(
        self, model: Any, tokenizer: Any, prompts: list[str], *, explore: float, **options: Any
    ) -> object:
        self.explored.append(explore)
        self.second_rounds.append(sum("Before:" in prompt for prompt in prompts))
        if len(self.explored) == 4:
            raise InterruptedError
        return self.complete(model, tokenizer, prompts, explore=explore, **options)


def cut_and_resume(config: TrainConfig, folder: Path, patch: pytest.MonkeyPatch) -> Cut:
    """Interrupt the imitation of a run, and resume it."""
    cut = Cut()
    with patch.context() as patched:
        patched.setattr(imitation, "complete", cut)
        with pytest.raises(InterruptedError):
            run.train(config, folder)
    run.train(config, folder, resume=True)
    return cut


def test_a_run_that_is_cut_off_while_it_sharpens_goes_on_to_the_same_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = recipe(IMITATION)
    monkeypatch.setattr(imitation, "is_settled", lambda records: len(records) == 2)
    run.train(config, tmp_path / "alone")
    cut = cut_and_resume(config, tmp_path / "cut", monkeypatch)
    assert cut.explored == [2.0, 2.0, 1.0, 1.0]
    records = curve(tmp_path / "alone")
    assert curve(tmp_path / "cut") == records
    assert [record["phase"] for record in records] == ["imitate"] * 4


def test_imitation_in_recursion_that_is_cut_off_between_its_two_rounds_goes_on_to_the_same_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = recipe(RECURSION)
    run.train(config, tmp_path / "alone")
    cut = cut_and_resume(config, tmp_path / "cut", monkeypatch)
    first, shown, first_again, shown_again = cut.second_rounds
    assert first == first_again == 0
    assert 0 < min(shown, shown_again) <= 8 * 4, "each answer once more, of half as many questions"
    records = curve(tmp_path / "alone")
    assert curve(tmp_path / "cut") == records
    assert [record["rollouts"] for record in records[:2]] == [32 + shown, 32 + shown_again]
    for record in records[:2]:
        assert {"single", "single, again"} <= set(record["accuracy_by_kind"])


# ── alarms, folders and disks ─────────────────────────────────────────────────────────────────────
def test_a_run_that_an_alarm_ended_is_resumed_from_its_checkpoint(
    tiny: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warnings(records: list[object]) -> list[str]:
        # At the end an alarm has nothing to end.
        return ["collapsing"] if len(records) in (1, tiny.rollout.iterations) else []

    config = tiny.model_copy(update={"alarms": "stop", "save_every": 100})
    monkeypatch.setattr(curves, "warnings", warnings)
    with pytest.raises(TrainingStopped, match=r"iteration 0: collapsing\. A checkpoint is written"):
        run.train(config, tmp_path / "run")
    assert len(curve(tmp_path / "run")) == 1
    run.train(config, tmp_path / "run", resume=True)
    run.train(config.model_copy(update={"alarms": "tell"}), tmp_path / "alone")
    records = curve(tmp_path / "alone")
    assert curve(tmp_path / "run") == records
    assert all(record["entropy"] > 0 and record["completion_tokens"] > 0 for record in records)
    (state,) = (tmp_path / "alone").glob("checkpoints/checkpoint-*/trainer_state.json")
    logged = json.loads(state.read_text("utf-8"))["log_history"][: len(records)]
    for record, log in zip(records, logged, strict=True):
        assert (record["grad_norm"], record["accuracy"]) == (
            log["grad_norm"],
            log["conductor/accuracy"],
        )
        assert log.keys() > {"conductor/validity", "conductor/undecided", "conductor/dollars"}


def test_a_run_that_was_killed_while_its_folder_was_made_begins_anew(
    tiny: TrainConfig, tmp_path: Path
) -> None:
    (tmp_path / "environment.json").write_text("{}", "utf-8")
    assert run._open_folder(tiny, tmp_path, "", resume=False) == ""
    assert (tmp_path / "config.toml").is_file()


def test_a_larger_budget_resumes_and_no_other_change_does(
    tiny: TrainConfig, tmp_path: Path
) -> None:
    run._open_folder(tiny, tmp_path, "", resume=False)
    budget = tiny.budget.model_copy(update={"calls": 7})
    larger = tiny.model_copy(update={"budget": budget})
    assert run._open_folder(larger, tmp_path, "", resume=True) == ""
    assert "calls = 7" in (tmp_path / "config.toml").read_text("utf-8")
    with pytest.raises(ConfigError, match="seed: 3 there, 4 here"):
        run._open_folder(larger.model_copy(update={"seed": 4}), tmp_path, "", resume=True)


def test_a_folder_with_another_run_is_refused_and_left_alone(
    tiny: TrainConfig, tmp_path: Path
) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("mine", "utf-8")
    with pytest.raises(ConfigError, match="not empty"):
        run.train(tiny, tmp_path)
    assert list(tmp_path.iterdir()) == [notes]
    notes.unlink()
    (tmp_path / "config.toml").write_text("name = 'other'\n", "utf-8")
    for resume, message in ((False, "holds a run already"), (True, "another recipe")):
        with pytest.raises(ConfigError, match=message):
            run.train(tiny, tmp_path, resume=resume)


def test_a_run_that_is_resumed_with_other_code_says_so_and_keeps_both_on_record(
    tiny: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record() -> dict[str, Any]:
        return json.loads((tmp_path / "environment.json").read_text("utf-8"))

    run._open_folder(tiny, tmp_path, "", resume=False)
    first = record()
    assert run._open_folder(tiny, tmp_path, "", resume=True) == "", "nothing has changed"
    assert record() == first
    monkeypatch.setattr(run, "source_hash", lambda: "other")
    assert "another source" in run._open_folder(tiny, tmp_path, "", resume=True)
    assert run._open_folder(tiny, tmp_path, "", resume=True) == "", "said once"
    assert record()["source"] == first["source"]
    assert [entry["source"] for entry in record()["resumed"]] == ["other"]


def test_a_full_disk_while_saving_is_a_typed_error_and_leaves_no_half_checkpoint(
    tiny: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import Trainer

    def full(self: object, output_dir: str) -> None:
        (Path(output_dir) / "optimizer.pt").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Trainer, "_save_optimizer_and_scheduler", full)
    with pytest.raises(JournalError, match="No space left on device"):
        run.train(tiny, tmp_path)
    assert not list(tmp_path.rglob("checkpoint-*"))
