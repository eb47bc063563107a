"""Real language models in small: BPE tokenizers, chat templates, bf16 weights; from a base to an exported Conductor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.learning.bases import save_base
from tests.learning.test_journal import Server, serving

from openconductor.cli import main
from openconductor.errors import ConfigError, TrainingStopped
from openconductor.gym.bundled import bundled_folder
from openconductor.training.checkpoint import load_model
from openconductor.training.run import train
from openconductor.training.train_config import TrainConfig

pytestmark = [pytest.mark.train, pytest.mark.timeout(900)]

GYM = {
    "pool": "gym",
    "data": {"task": "gym"},
    "prompt": {"template": "compact", "access": "index"},
    "rollout": {"iterations": 3, "questions": 2, "completions": 4, "max_tokens": 48},
    "optim": {"learning_rate": 1e-6, "schedule": "constant", "warmup": 0.0, "micro_batch": 8},
    "start": {"validity": 0.0, "prompts": 4, "workflows": 4},
    "held_out": {"questions": 4},
}


def recipe(base: Path, **changed: Any) -> TrainConfig:
    tables: dict[str, Any] = {
        name: {**table} if isinstance(table, dict) else table for name, table in GYM.items()
    }
    for name, table in changed.items():
        tables[name] = {**tables.get(name, {}), **table} if isinstance(table, dict) else table
    return TrainConfig.model_validate(
        {**tables, "model": {**tables.get("model", {}), "base": str(base)}}
    )


@pytest.fixture(scope="module", params=["qwen2", "llama"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_base(tmp_path_factory.mktemp("bases") / request.param, request.param)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_base(tmp_path_factory.mktemp("bases") / "qwen2", "qwen2")


# ── the model ─────────────────────────────────────────────────────────────────────────────────────
def test_a_bf16_base_learns_in_float32_and_brings_none_of_its_own_sampling_settings(
    base: Path,
) -> None:
    model, tokenizer = load_model(base)
    assert model.dtype == torch.float32
    settings = model.generation_config
    assert (settings.top_p, settings.top_k, settings.repetition_penalty, settings.do_sample) == (
        None,
        None,
        None,
        None,
    )
    assert sorted(settings.eos_token_id) == sorted(
        tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    )


@pytest.mark.slow
def test_a_bf16_base_moves_at_the_papers_learning_rate(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from openconductor.training.grpo import ConductorTrainer

    def drawn(
        self: Any, *_: Any
    ) -> torch.Tensor:  # rewards with a spread: a random model earns none
        return torch.rand(
            (len(self.rows), 1), generator=torch.Generator().manual_seed(self.iteration)
        )

    monkeypatch.setattr(ConductorTrainer, "_calculate_rewards", drawn)
    train(recipe(base), tmp_path / "run")
    before, after = (
        load_model(base)[0].state_dict(),
        load_model(tmp_path / "run" / "conductor")[0].state_dict(),
    )
    moved = sum(
        int((after[name] != one).sum()) for name, one in before.items() if "embed" not in name
    )
    assert moved / sum(one.numel() for name, one in before.items() if "embed" not in name) > 0.95


@pytest.mark.slow
def test_adapters_learn_in_place_of_the_weights_and_are_merged_at_the_end(
    qwen: Path, tmp_path: Path
) -> None:
    cold = {"steps": 4, "batch": 4, "learning_rate": 1e-2}
    train(recipe(qwen, model={"lora_rank": 2}, cold_start=cold), tmp_path / "run")
    before, after = (
        load_model(qwen)[0].state_dict(),
        load_model(tmp_path / "run" / "conductor")[0].state_dict(),
    )
    assert before.keys() == after.keys()
    changed = {name for name, one in before.items() if not torch.equal(one, after[name])}
    assert changed and all(name.endswith("proj.weight") for name in changed)


# ── the start ─────────────────────────────────────────────────────────────────────────────────────
def test_a_start_without_valid_plans_shows_three_and_stops_before_anything_is_paid(
    qwen: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    with pytest.raises(
        TrainingStopped, match=r"0 of 4 completions are valid workflows, expected a share of 0.05"
    ):
        train(recipe(qwen, start={"validity": 0.05}), tmp_path / "run", on_progress=said.append)
    shown = [line for line in said if line.startswith("--- completion ")]
    assert len(shown) == 3 and all("truncated" in line or "missing_list" in line for line in shown)
    assert not (tmp_path / "run" / "curves.jsonl").exists()


def test_a_base_that_is_not_there_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.base .*nowhere.* could not be loaded"):
        train(recipe(tmp_path / "nowhere"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_samples_and_what_tracks_must_be_there_before_anything_is_written(
    qwen: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"rollout\.engine: vllm not installed"):
        train(recipe(qwen, rollout={"engine": "vllm"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_adapters_that_were_cut_off_resume_to_the_same_weights(qwen: Path, tmp_path: Path) -> None:
    cold = {"steps": 4, "batch": 4, "learning_rate": 1e-2}
    config = recipe(
        qwen, model={"lora_rank": 2}, cold_start=cold, save_every=1, optim={"learning_rate": 1e-3}
    )
    train(config, tmp_path / "run")
    weights = tmp_path / "run" / "conductor" / "model.safetensors"
    before = weights.read_bytes()
    results = json.loads((tmp_path / "run" / "results.json").read_text("utf-8"))
    # Killed in its last iteration, right behind it, and before the last measurement was written.
    for number, lost in enumerate((("conductor", "checkpoints/checkpoint-3"), ("conductor",), ())):
        for name in ("results.json", *lost):
            (tmp_path / "run" / name).rename(tmp_path / f"{number}-{Path(name).name}")
        resumed = train(config, tmp_path / "run", resume=True)
        assert weights.read_bytes() == before
        assert (resumed["sampled"], resumed["greedy"]) == (results["sampled"], results["greedy"])


def test_a_finished_run_is_not_repeated_and_its_start_is_measured_once(
    qwen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = train(recipe(qwen, rollout={"iterations": 1}), tmp_path / "run")
    assert (results["start"]["rollouts"], results["start"]["format"]) == (
        4,
        {"prompts": 4, "validity": 0.0},
    )
    said: list[str] = []
    assert (
        train(
            recipe(qwen, rollout={"iterations": 1}),
            tmp_path / "run",
            resume=True,
            on_progress=said.append,
        )
        == results
    )
    assert "is finished" in said[-1]


# ── the paper's mix ───────────────────────────────────────────────────────────────────────────────
def write_mix(folder: Path) -> Path:
    """Ten made rows of each of the four sets, in their shapes."""
    code = {
        "platform": "atcoder",
        "contest_date": "2023-05-01T00:00:00",
        "starter_code": "",
        "metadata": "{}",
    }
    tests = json.dumps([{"input": "1\n", "output": "42\n", "testtype": "stdin"}])
    rows = {
        "math": [
            {
                "problem": f"What is {n} + {42 - n}?",
                "solution": r"It is $\boxed{42}$.",
                "level": "Level 5",
                "type": "Algebra",
            }
            for n in range(10)
        ],
        "mmlu": [
            {
                "question": f"Which is {n}?",
                "choices": ["one", "two", "three", "four"],
                "answer": n % 4,
                "subject": "s",
            }
            for n in range(10)
        ],
        "rlpr": [
            {"id": n, "question": f"Who found law {n}?", "answer": "Isaac Newton"}
            for n in range(10)
        ],
        "livecodebench_v1": [
            {
                **code,
                "question_title": f"t{n}",
                "question_content": f"Print 42, {n}.",
                "question_id": f"q{n}",
                "contest_id": "c",
                "difficulty": "hard",
                "public_test_cases": tests,
                "private_test_cases": tests,
            }
            for n in range(10)
        ],
    }
    folder.mkdir()
    for name, those in rows.items():
        (folder / f"{name}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in those), "utf-8"
        )
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
    url = f"http://127.0.0.1:{server.server_port}/v1"
    workers = "".join(
        f'[[worker]]\nname = "w{i}"\nmodel = "m{i}"\nbase_url = "{url}"\n' for i in range(2)
    )
    (tmp_path / "pool.toml").write_text(workers, "utf-8")
    write_mix(tmp_path / "mix")
    held_out = [
        {"problem": f"What is {n} + 1?", "answer": str(n + 1), "unique_id": f"t/{n}.json"}
        for n in range(3)
    ]
    (tmp_path / "math500.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in held_out), "utf-8"
    )
    (tmp_path / "recipe.toml").write_text(
        f"""
[data]
path = "mix"
[model]
base = "{qwen.as_posix()}"
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
""",
        "utf-8",
    )
    assert main(["train", "recipe.toml", "--out", "run"]) == 0
    curve = [
        json.loads(line)
        for line in (tmp_path / "run" / "curves.jsonl").read_text("utf-8").splitlines()
    ]
    assert {kind for record in curve for kind in record["accuracy_by_kind"]} == {
        "math",
        "mmlu",
        "rlpr",
        "livecodebench_v1",
    }
    assert sum(record["validity"] for record in curve) / len(curve) > 0.3
    assert sum(record["masked"] for record in curve) < 0.05 * sum(
        record["rollouts"] for record in curve
    )
    assert all(record["reward"] >= 0.5 * record["validity"] - 1e-9 for record in curve)
    assert any(record["accuracy_by_kind"].get("math") for record in curve), (
        "42 is the answer to all of its questions"
    )


# ── several processes ─────────────────────────────────────────────────────────────────────────────
def launch(processes: int, *command: str) -> None:
    root = Path(__file__).parents[2]
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        f"--nproc_per_node={processes}",
        "--standalone",
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}",
        "OMP_NUM_THREADS": "1",
    }
    ran = subprocess.run(
        [*launcher, *command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]


@pytest.mark.slow
def test_two_processes_reward_and_learn_as_one(qwen: Path, tmp_path: Path) -> None:
    for processes in (1, 2):
        script = str(Path(__file__).with_name("two_processes.py"))
        launch(processes, script, str(qwen), str(tmp_path / str(processes)))
    one, two = (
        json.loads((tmp_path / str(count) / "rewards.json").read_text("utf-8")) for count in (1, 2)
    )
    assert one["rewards"] == two["rewards"] and len(set(one["rewards"])) > 1
    assert torch.allclose(
        torch.tensor(one["advantages"]), torch.tensor(two["advantages"]), atol=1e-6
    )
    alone, shared = (torch.load(tmp_path / str(count) / "update.pt") for count in (1, 2))
    norm = sum(float(update.norm()) ** 2 for update in alone.values()) ** 0.5
    apart = sum(float((update - shared[name]).norm()) ** 2 for name, update in alone.items()) ** 0.5
    assert norm > 0 and apart <= 0.01 * norm, (apart, norm)


@pytest.mark.slow
def test_a_run_of_two_processes_ends_whole_and_one_that_was_cut_resumes_with_one(
    qwen: Path, tmp_path: Path
) -> None:
    from openconductor.training.train_config import dump_train_config

    recipe_file = tmp_path / "recipe.toml"
    config = recipe(
        qwen,
        save_every=1,
        cold_start={"steps": 2, "batch": 4, "micro_batch": 4},
        rollout={"questions": 4, "rounds": 2, "offered": [2, 3]},
        optim={"micro_batch": 4, "bf16": False},
    )
    recipe_file.write_text(dump_train_config(config), "utf-8")
    launch(2, "-m", "openconductor", "train", str(recipe_file), "--out", str(tmp_path / "run"))
    curve = [
        json.loads(line)
        for line in (tmp_path / "run" / "curves.jsonl").read_text("utf-8").splitlines()
    ]
    assert [(record["iteration"], record["rollouts"]) for record in curve] == [
        (0, 16),
        (1, 16),
        (2, 16),
    ]
    for name in (
        "results.json",
        "conductor",
        "checkpoints/checkpoint-3",
    ):  # as if it had been killed in its third
        path = tmp_path / "run" / name
        path.unlink() if path.is_file() else path.rename(tmp_path / path.name)
    assert main(["train", str(recipe_file), "--out", str(tmp_path / "run"), "--resume"]) == 0
    resumed = [
        json.loads(line)
        for line in (tmp_path / "run" / "curves.jsonl").read_text("utf-8").splitlines()
    ]
    assert [record["iteration"] for record in resumed] == [0, 1, 2]
    assert (tmp_path / "run" / "results.json").is_file()


@pytest.mark.slow
def test_two_processes_imitate_together_and_one_goes_on_alone(tmp_path: Path) -> None:
    from openconductor.training.train_config import dump_train_config

    recipe_file = tmp_path / "recipe.toml"
    config = TrainConfig.model_validate(
        {
            "pool": "gym",
            "data": {"task": "gym"},
            "model": {"base": str(bundled_folder() / "cold_start")},
            "imitate": {
                "rounds": 2,
                "questions": 10,
                "completions": 3,
                "steps": 2,
                "batch": 8,
                "micro_batch": 2,
            },
            "prompt": {"template": "compact", "access": "index"},
            "rollout": {"iterations": 0, "max_tokens": 72},
            "optim": {"bf16": False, "checkpointing": False},
            "start": {"prompts": 8, "workflows": 8},
            "held_out": {"questions": 8},
        }
    )
    recipe_file.write_text(dump_train_config(config), "utf-8")
    launch(2, "-m", "openconductor", "train", str(recipe_file), "--out", str(tmp_path / "run"))

    def curve() -> list[tuple[str, int]]:
        lines = (tmp_path / "run" / "curves.jsonl").read_text("utf-8").splitlines()
        return [(record["phase"], record["rollouts"]) for record in map(json.loads, lines)]

    assert curve() == [("imitate", 30)] * 2
    for name in (
        "results.json",
        "conductor",
        "imitated",
    ):  # as if it had been killed in its first round
        path = tmp_path / "run" / name
        path.unlink() if path.is_file() else path.rename(tmp_path / path.name)
    assert main(["train", str(recipe_file), "--out", str(tmp_path / "run"), "--resume"]) == 0
    assert curve() == [("imitate", 30)] * 2
    assert (tmp_path / "run" / "results.json").is_file()
