"""Language models in small: BPE tokenizers, chat templates, bf16 weights, several processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from tests.learning.bases import save_base
from tests.learning.runs import COLD_START, curve, measured, recipe, set_back, weights
from tests.learning.test_journal import Server, serving
from trl import GRPOTrainer

import openconductor as oc
from openconductor.cli import main
from openconductor.errors import ConfigError, TrainingStopped, WorkflowError
from openconductor.gym.workers import gym_pool
from openconductor.training.checkpoint import save_conductor
from openconductor.training.grpo import ConductorTrainer
from openconductor.training.models import ADAPTER, load_model
from openconductor.training.run import train
from openconductor.training.train_config import TrainConfig, dump_train_config

pytestmark = [pytest.mark.train, pytest.mark.timeout(900)]

RECIPE = """
save_every = 1
prompt = { template = "compact", access = "index" }
rollout = { iterations = 3, questions = 2, completions = 4, max_tokens = 48 }
optim = { learning_rate = 1e-6, schedule = "constant", warmup = 0.0, micro_batch = 8 }
start = { validity = 0.0, prompts = 4, workflows = 4 }
held_out = { questions = 4 }
"""
ADAPTERS = """
model = { lora_rank = 2 }
cold_start = { steps = 4, batch = 4, learning_rate = 1e-2 }
"""


@pytest.fixture(scope="module", params=["qwen2", "llama"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_base(tmp_path_factory.mktemp("bases") / request.param, request.param)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_base(tmp_path_factory.mktemp("bases") / "qwen2", "qwen2")


def tensors(folder: Path) -> Mapping[str, torch.Tensor]:
    model, _ = load_model(folder)
    return model.state_dict()


# ── the model ─────────────────────────────────────────────────────────────────────────────────────
def test_a_bf16_base_learns_in_float32_and_brings_none_of_its_own_sampling_settings(
    base: Path,
) -> None:
    model, tokenizer = load_model(base)
    assert model.dtype == torch.float32
    settings = model.generation_config
    assert settings.top_p is settings.top_k is settings.repetition_penalty is None
    assert settings.do_sample is None
    ends = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    assert sorted(settings.eos_token_id) == sorted(ends)


@pytest.mark.slow
def test_a_bf16_base_moves_at_the_papers_learning_rate(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def draw(trainer: Any, *_: Any) -> torch.Tensor:
        """Rewards with a spread, which a random model does not earn."""
        generator = torch.Generator().manual_seed(trainer.iteration)
        return torch.rand((len(trainer.rows), 1), generator=generator)

    monkeypatch.setattr(ConductorTrainer, "_calculate_rewards", draw)
    train(recipe(RECIPE, base=base), tmp_path / "run")
    before, after = tensors(base), tensors(tmp_path / "run" / "conductor")
    moved = total = 0
    for name, values in before.items():
        if "embed" not in name:
            moved += int((after[name] != values).sum())
            total += values.numel()
    assert moved / total > 0.95


@pytest.mark.slow
def test_adapters_learn_in_place_of_the_weights_are_merged_and_resume_to_the_same_weights(
    qwen: Path, tmp_path: Path
) -> None:
    text = RECIPE.replace("learning_rate = 1e-6", "learning_rate = 1e-3") + ADAPTERS
    config = recipe(text, base=qwen)
    run = tmp_path / "run"
    train(config, run)
    before, after = tensors(qwen), tensors(run / "conductor")
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all(name.endswith("proj.weight") for name in changed)
    learnt, results = weights(run / "conductor"), measured(run)
    # Killed in its last iteration, right behind it, and before the last measurement was written.
    for lost in (("conductor", "checkpoints/checkpoint-3"), ("conductor",), ()):
        set_back(run, "results.json", *lost)
        train(config, run, resume=True)
        assert weights(run / "conductor") == learnt
        assert measured(run) == results


def test_adapters_are_kept_beside_the_merged_weights_and_exported_for_the_base(
    qwen: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = recipe(RECIPE.replace("iterations = 3", "iterations = 1") + ADAPTERS, base=qwen)
    run, folder = tmp_path / "run", tmp_path / "adapter"
    types: list[torch.dtype] = []
    sample = GRPOTrainer._generate_single_turn

    def note_type(trainer: Any, *arguments: Any) -> Any:
        types.append((torch.ones(1, 1) @ torch.ones(1, 1)).dtype)
        return sample(trainer, *arguments)

    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", note_type)
    train(config, run)
    assert types == [torch.bfloat16], "as what is learnt"
    assert main(["export", str(run), "--adapter", "--dtype", "float32", "--out", str(folder)]) == 0
    assert f"vllm serve {qwen} --enable-lora --max-lora-rank 8" in capsys.readouterr().err
    assert not (folder / "model.safetensors").exists()
    settings = json.loads((folder / "adapter_config.json").read_text("utf-8"))
    assert settings["r"] == 4, "two phases of rank 2"
    assert settings["base_model_name_or_path"] == str(qwen)
    base, _ = load_model(qwen)
    merged = PeftModel.from_pretrained(base, folder).merge_and_unload().state_dict()
    for name, values in tensors(run / "conductor").items():
        torch.testing.assert_close(merged[name], values, rtol=0, atol=1e-6)
    conductor = oc.Conductor(folder, pool=gym_pool())
    assert isinstance(conductor.ask_sync("What is 2 + 3?").error, WorkflowError)

    # A Conductor that is the model of an earlier phase keeps that phase's.
    model, tokenizer = load_model(run / "cold_start")
    save_conductor(model, tokenizer, config, tmp_path / "same", before=run / "cold_start")
    kept = [
        path / ADAPTER / "adapter_config.json" for path in (run / "cold_start", tmp_path / "same")
    ]
    assert kept[0].read_bytes() == kept[1].read_bytes()


# ── the start ─────────────────────────────────────────────────────────────────────────────────────
def test_a_start_without_valid_plans_shows_three_and_stops_before_anything_is_paid(
    qwen: Path, tmp_path: Path
) -> None:
    lines: list[str] = []
    config = recipe(RECIPE.replace("validity = 0.0", "validity = 0.05"), base=qwen)
    message = r"0 of 4 completions are valid workflows, expected a share of 0.05"
    with pytest.raises(TrainingStopped, match=message):
        train(config, tmp_path, on_progress=lines.append)
    shown = [line for line in lines if line.startswith("--- completion ")]
    assert len(shown) == 3
    assert all("truncated" in line or "missing_list" in line for line in shown)
    assert not (tmp_path / "curves.jsonl").exists()


@pytest.mark.parametrize(
    ("text", "base", "message"),
    [
        (RECIPE, "nowhere", r"model\.base .*nowhere.* could not be loaded"),
        (
            RECIPE.replace("rollout = {", 'rollout = { engine = "vllm",'),
            None,
            r'rollout\.engine: vllm is not installed; pip install "openconductor\[vllm\]"',
        ),
    ],
    ids=["no base", "no engine"],
)
def test_what_is_missing_is_refused_and_leaves_no_folder(
    text: str, base: str | None, message: str, tmp_path: Path
) -> None:
    config = recipe(text, base=COLD_START if base is None else tmp_path / base)
    with pytest.raises(ConfigError, match=message):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_finished_run_is_not_repeated_and_its_start_is_measured_once(
    qwen: Path, tmp_path: Path
) -> None:
    config = recipe(RECIPE.replace("iterations = 3", "iterations = 1"), base=qwen)
    results = train(config, tmp_path)
    assert results["start"]["rollouts"] == 4
    assert results["start"]["format"] == {"prompts": 4, "validity": 0.0}
    lines: list[str] = []
    assert train(config, tmp_path, resume=True, on_progress=lines.append) == results
    assert "is finished" in lines[-1]


# ── the paper's mix ───────────────────────────────────────────────────────────────────────────────
MIX = """
[data]
path = "mix"
[cold_start]
steps = 130
batch = 4
micro_batch = 4
learning_rate = 2e-2
[start]
validity = 0.0   # at temperature 1 so small a model wanders off
prompts = 8
workflows = 8
[rollout]
iterations = 5
completions = 4
temperature = 0.2
max_tokens = 80
max_steps = 1
[optim]
micro_batch = 8
checkpointing = false
[held_out]
task = "math500"
path = "math500.jsonl"
"""
PARTS = {"math", "mmlu", "rlpr", "livecodebench_v1"}
PROGRAM = """
{"platform": "atcoder", "contest_date": "2023-05-01T00:00:00", "starter_code": "", "metadata": "{}",
 "contest_id": "c", "difficulty": "hard"}
"""
WORKER = '[[worker]]\nname = "w{0}"\nmodel = "m{0}"\nbase_url = "{1}"\n'


def mix_row(part: str, n: int) -> dict[str, object]:
    """A made row of one of the four sets, in its shape."""
    if part == "math":
        solution, level = r"It is $\boxed{42}$.", {"level": "Level 5", "type": "Algebra"}
        return {"problem": f"What is {n} + {42 - n}?", "solution": solution, **level}
    if part == "mmlu":
        choices = ["one", "two", "three", "four"]
        return {"question": f"Which is {n}?", "choices": choices, "answer": n % 4, "subject": "s"}
    if part == "rlpr":
        return {"id": n, "question": f"Who found law {n}?", "answer": "Isaac Newton"}
    tests = json.dumps([{"input": "1\n", "output": "42\n", "testtype": "stdin"}])
    cases = {"public_test_cases": tests, "private_test_cases": tests}
    named = {"question_title": f"t{n}", "question_content": f"Print 42, {n}."}
    return {**json.loads(PROGRAM), **named, **cases, "question_id": f"q{n}"}


def write_rows(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def write_mix(folder: Path) -> Path:
    """Write ten rows of each of the four sets."""
    folder.mkdir()
    for part in PARTS:
        write_rows(folder / f"{part}.jsonl", [mix_row(part, n) for n in range(10)])
    return folder


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.mark.slow
def test_the_papers_mix_trains_through_the_command_and_every_part_is_rewarded(
    qwen: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_mix(Path("mix"))
    held_out = [
        {"problem": f"What is {n} + 1?", "answer": str(n + 1), "unique_id": f"t/{n}.json"}
        for n in range(3)
    ]
    write_rows(Path("math500.jsonl"), held_out)
    url = f"http://127.0.0.1:{server.server_port}/v1"
    Path("pool.toml").write_text(WORKER.format(0, url) + WORKER.format(1, url), "utf-8")
    Path("recipe.toml").write_text(f'{MIX}[model]\nbase = "{qwen.as_posix()}"\n', "utf-8")
    assert main(["train", "recipe.toml", "--out", "run"]) == 0

    records = curve(tmp_path / "run")
    assert {kind for record in records for kind in record["accuracy_by_kind"]} == PARTS
    assert sum(record["validity"] for record in records) / len(records) > 0.3
    rollouts = sum(record["rollouts"] for record in records)
    assert sum(record["masked"] for record in records) < 0.05 * rollouts
    assert all(record["reward"] >= 0.5 * record["validity"] - 1e-9 for record in records)
    right = [record for record in records if record["accuracy_by_kind"].get("math")]
    assert right, "42 is the answer to all of its questions"


# ── several processes ─────────────────────────────────────────────────────────────────────────────
def launch(processes: int, *command: str) -> None:
    root = Path(__file__).parents[2]
    launcher = ["-m", "torch.distributed.run", f"--nproc_per_node={processes}", "--standalone"]
    path = f"{root / 'src'}{os.pathsep}{root}"
    finished = subprocess.run(
        [sys.executable, *launcher, *command],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert finished.returncode == 0, finished.stderr[-3000:]


def train_together(config: TrainConfig, folder: Path) -> list[str]:
    """Train with two processes; return the command."""
    recipe_file = folder.with_suffix(".toml")
    recipe_file.write_text(dump_train_config(config), "utf-8")
    command = ["train", str(recipe_file), "--out", str(folder)]
    launch(2, "-m", "openconductor", *command)
    return command


@pytest.mark.slow
def test_two_processes_reward_and_learn_as_one(qwen: Path, tmp_path: Path) -> None:
    script = str(Path(__file__).with_name("two_processes.py"))
    alone, together = tmp_path / "1", tmp_path / "2"
    launch(1, script, str(qwen), str(alone))
    launch(2, script, str(qwen), str(together))
    one = json.loads((alone / "rewards.json").read_text("utf-8"))
    two = json.loads((together / "rewards.json").read_text("utf-8"))
    assert one["rewards"] == two["rewards"] and len(set(one["rewards"])) > 1
    advantages = torch.tensor(one["advantages"])
    assert torch.allclose(advantages, torch.tensor(two["advantages"]), atol=1e-6)
    mine, shared = torch.load(alone / "gradients.pt"), torch.load(together / "gradients.pt")
    assert mine.keys() == shared.keys()
    norm = torch.stack([mine[name].norm() for name in mine]).norm()
    apart = torch.stack([(mine[name] - shared[name]).norm() for name in mine]).norm()
    assert norm > 0 and apart <= 0.001 * norm, (apart, norm)


@pytest.mark.slow
def test_a_run_of_two_processes_ends_whole_and_one_that_was_cut_resumes_with_one(
    qwen: Path, tmp_path: Path
) -> None:
    two_rounds = RECIPE.replace("questions = 2,", "questions = 4, rounds = 2, offered = [2, 3],")
    text = two_rounds.replace("micro_batch = 8", "micro_batch = 4, bf16 = false")
    cold_start = "cold_start = { steps = 2, batch = 4, micro_batch = 4 }\n"
    run = tmp_path / "run"
    command = train_together(recipe(text + cold_start, base=qwen), run)
    sizes = [(record["iteration"], record["rollouts"]) for record in curve(run)]
    assert sizes == [(0, 16), (1, 16), (2, 16)]
    set_back(run, "results.json", "conductor", "checkpoints/checkpoint-3")  # killed in its third
    assert main([*command, "--resume"]) == 0
    assert [record["iteration"] for record in curve(run)] == [0, 1, 2]
    assert (run / "results.json").is_file()


TOGETHER = """
imitate = { rounds = 2, questions = 10, completions = 3, steps = 2, batch = 8, micro_batch = 2 }
prompt = { template = "compact", access = "index" }
rollout = { iterations = 0, max_tokens = 72 }
optim = { bf16 = false, checkpointing = false }
start = { prompts = 8, workflows = 8 }
held_out = { questions = 8 }
"""


@pytest.mark.slow
def test_two_processes_imitate_together_and_one_goes_on_alone(tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = train_together(recipe(TOGETHER), run)
    rounds = [(record["phase"], record["rollouts"]) for record in curve(run)]
    assert rounds == [("imitate", 30)] * 2
    set_back(run, "results.json", "conductor", "imitated")  # killed in its first round
    assert main([*command, "--resume"]) == 0
    assert [(record["phase"], record["rollouts"]) for record in curve(run)] == rounds
    assert (run / "results.json").is_file()
