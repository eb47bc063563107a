"""What a training would need, with the shape of the paper's model and none of its weights."""

from __future__ import annotations

import json
import re
import shutil
from decimal import Decimal
from pathlib import Path

import pytest
from tests.learning.bases import save_base
from tests.learning.test_language_model import write_mix

from openconductor.cli import main
from openconductor.cli.train import estimate_lines
from openconductor.errors import ConfigError
from openconductor.pool import WorkerPool
from openconductor.training.estimate import TrainingNeeds, estimate
from openconductor.training.train_config import TrainConfig, load_train_config

pytestmark = pytest.mark.train

ROOT = Path(__file__).parents[3]
KEYS = ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY")
QWEN_7B = {  # of Qwen2.5-7B-Instruct
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "max_window_layers": 28,
    "tie_word_embeddings": False,
}
QWEN_3B = QWEN_7B | {
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_window_layers": 36,
    "tie_word_embeddings": True,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models without weights, ``7b`` and ``3b``, and local data as the recipes' tasks have them."""
    folder = tmp_path_factory.mktemp("dry-run")
    small = save_base(folder / "small", "qwen2")
    (small / "model.safetensors").unlink()
    described = json.loads((small / "config.json").read_text("utf-8"))
    described = {
        name: value for name, value in described.items() if name not in ("layer_types", "head_dim")
    }
    for name, shape in (("7b", QWEN_7B), ("3b", QWEN_3B)):
        shutil.copytree(small, folder / name)
        (folder / name / "config.json").write_text(json.dumps(described | shape), "utf-8")
    write_mix(folder / "mix")
    held_out = [
        {"problem": f"What is {n} + 1?", "answer": str(n + 1), "unique_id": f"t/{n}.json"}
        for n in range(400)
    ]
    (folder / "math500.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in held_out), "utf-8"
    )
    return folder


@pytest.fixture(autouse=True)
def without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # recipes name their pool from here
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)


def overrides(data: Path, size: str, *more: str) -> list[str]:
    return [
        f"model.base={json.dumps(str(data / size))}",
        f"data.path={json.dumps(str(data / 'mix'))}",
        'held_out.task="math500"',
        f"held_out.path={json.dumps(str(data / 'math500.jsonl'))}",
        *more,
    ]


def needs(data: Path, size: str, *more: str) -> TrainingNeeds:
    return estimate(recipe(data, size, *more))


def recipe(data: Path, size: str, *more: str) -> TrainConfig:
    return load_train_config(ROOT / "recipes" / f"paper_{size}.toml", overrides(data, size, *more))


@pytest.fixture(scope="module")
def seven(data: Path) -> TrainingNeeds:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        for key in KEYS:
            patch.delenv(key, raising=False)
        return needs(data, "7b")


# ── the model ─────────────────────────────────────────────────────────────────────────────────────
def test_the_model_is_built_with_its_parameters_and_without_its_weights(
    seven: TrainingNeeds,
) -> None:
    embedding, layer = (
        152064 * 3584,
        3584 * 3584 + 3584 + 2 * (3584 * 512 + 512) + 3584 * 3584 + 3 * 3584 * 18944,
    )
    assert (
        seven.parameters
        == seven.learnt
        == 2 * embedding + 28 * (layer + 2 * 3584) + 3584
        == 7_615_616_512
    )


def test_the_memory_of_a_card_is_what_one_computes_by_hand(seven: TrainingNeeds) -> None:
    states = 16 * 7_615_616_512 / 2**30  # weight, gradient and two moments in float32
    length = seven.prompt_tokens + 1024
    copied = 2 * 7_615_616_512 / 2**30  # what samples has the weights in bfloat16
    for cards, memory in seven.memory.items():
        rows = min(64, 256 // cards)
        cache = (
            rows * length * 28 * 2 * 4 * 128 * 2 / 2**30
        )  # layers, keys and values, heads, units, bytes
        assert memory["weights, gradients, Adam"] == pytest.approx(states / cards)
        assert memory["sampling"] == pytest.approx(cache + copied)
        assert 1 < memory["activations"] < 4, "two rows with checkpointing"
        assert memory["peak"] == pytest.approx(states / cards + cache + copied)
    peaks = {cards: memory["peak"] for cards, memory in seven.memory.items()}
    assert peaks[1] > 120 and 75 < peaks[2] < 85 and 45 < peaks[4] < 60 and 30 < peaks[8] < 40


def test_a_server_that_samples_takes_that_memory_off_the_cards_that_learn(data: Path) -> None:
    memory = needs(data, "7b", 'rollout.engine="vllm_server"').memory[2]
    assert memory["sampling"] == 0 and 57 < memory["peak"] < 62


def test_adapters_learn_little_and_leave_the_frozen_weights_in_float32(data: Path) -> None:
    found = needs(data, "3b", "model.lora_rank=32")
    assert 3.0e9 < found.parameters < 3.1e9
    linear = (
        2048 * 4 + (2048 + 256) * 2 + (2048 + 11008) * 3
    )  # inputs and outputs of a layer's seven
    assert found.learnt == 32 * 36 * linear
    states = (4 * (found.parameters - found.learnt) + 16 * found.learnt) / 2**30
    assert (
        found.memory[1]["weights, gradients, Adam"] == pytest.approx(states)
        and found.memory[1]["peak"] < 24
    )


# ── calls and dollars ─────────────────────────────────────────────────────────────────────────────
def test_every_worker_of_the_papers_pool_has_a_price_so_that_a_budget_in_dollars_can_be_kept() -> (
    None
):
    assert [
        worker.name
        for _, worker in WorkerPool.from_toml("recipes/pools/paper.toml")
        if not worker.price
    ] == []


def test_calls_and_dollars_follow_from_the_recipe_and_the_pools_prices(
    seven: TrainingNeeds,
) -> None:
    assert seven.rollouts == 200 * 4 * 64 + 64 + 2 * 400
    assert (seven.calls, seven.tokens) == (3 * seven.rollouts, 3 * seven.rollouts * 1600)
    asked = [(1.25, 10), (3, 15), (1.25, 10), (0.12, 0.18), (0.08, 0.35), (0.14, 0.4), (0.14, 0.4)]
    a_call = sum(900 * read + 700 * written for read, written in asked) / 7e6
    assert float(seven.dollars or 0) == pytest.approx(seven.calls * a_call)
    assert seven.hours[1] > seven.hours[2] > seven.hours[8] > 200 * 3 * 30 / 3600, (
        "the workers' time stays"
    )


def test_half_of_an_iteration_may_be_second_rounds_and_rounds_of_imitation_may_be_all_there_is(
    data: Path,
) -> None:
    assert (
        needs(data, "7b", "rollout.rounds=2", "rollout.iterations=20").rollouts
        == 20 * 4 * 64 + 64 + 2 * 400
    )
    found = needs(data, "7b", "imitate.rounds=3", "rollout.iterations=0")
    assert found.rollouts == 3 * 256 * 4 + 64 + 2 * 400
    assert found.prompt_tokens > 1000


def test_the_heads_of_the_recipes_say_what_the_dry_run_says(
    seven: TrainingNeeds, data: Path
) -> None:
    """Within a GiB: a tokenizer of its own makes the prompt a little longer or shorter."""

    def head(size: str, pattern: str) -> float:
        said = (ROOT / "recipes" / f"paper_{size}.toml").read_text("utf-8").replace("#", " ")
        found = re.search(pattern, " ".join(said.split()))
        assert found, pattern
        return float(found[1].replace(",", ""))

    three, adapted = needs(data, "3b"), needs(data, "3b", "model.lora_rank=32")
    elsewhere = needs(data, "7b", 'rollout.engine="vllm_server"')
    assert head("7b", r"cache 9\): (\d+) GiB") == pytest.approx(seven.memory[4]["peak"], abs=1)
    assert head("7b", r"2 x H100 it is (\d+) GiB") == pytest.approx(seven.memory[2]["peak"], abs=1)
    assert head("7b", r"then it is (\d+)\.") == pytest.approx(elsewhere.memory[2]["peak"], abs=1)
    assert head("7b", r"Hours: (\d+) on four cards") == pytest.approx(seven.hours[4], abs=1)
    assert head("7b", r"= ([\d,]+) calls") == seven.calls
    assert (
        head("7b", r"equally often, they are (\d+)")
        == head("3b", r"Dollars: (\d+)")
        == round(seven.dollars or 0)
    )
    assert head("3b", r"rows sampled at a time: (\d+) GiB") == pytest.approx(
        three.memory[1]["peak"], abs=1
    )
    assert head("3b", r"On two, (\d+) GiB each") == pytest.approx(three.memory[2]["peak"], abs=1)
    assert head("3b", r"Hours: (\d+) on one card") == pytest.approx(three.hours[1], abs=1)
    assert head("3b", r"it takes (\d+) GiB") == pytest.approx(adapted.memory[1]["peak"], abs=1)


# ── checks ────────────────────────────────────────────────────────────────────────────────────────
def test_keys_that_are_not_set_are_listed(
    seven: TrainingNeeds, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert seven.missing_keys == KEYS
    assert (
        estimate_lines(recipe(data, "7b"), seven)[-1] == f"keys         not set: {', '.join(KEYS)}"
    )
    for key in KEYS[1:]:
        monkeypatch.setenv(key, "secret")
    assert needs(data, "7b").missing_keys == KEYS[:1]


def test_data_a_pool_or_a_tokenizer_that_are_not_there_are_errors(
    data: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"nowhere, expected a folder of math\.jsonl"):
        needs(data, "7b", f"data.path={json.dumps(str(tmp_path / 'nowhere'))}")
    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        needs(data, "7b", f"pool={json.dumps(str(tmp_path / 'nowhere.toml'))}")
    shutil.copy(data / "7b" / "config.json", tmp_path)
    with pytest.raises(ConfigError, match=r"could not be loaded|has no chat template"):
        needs(data, "7b", f"model.base={json.dumps(str(tmp_path))}")


def test_the_command_prints_the_estimate_and_the_same_as_json(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", "recipes/paper_7b.toml", *overrides(data, "7b"), "--dry-run"]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert "7.62 B parameters" in " ".join(printed.out.split()) and "8 GPUs" in printed.out
    assert "Warning" not in printed.err
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["parameters"], found["missing_keys"]) == (7_615_616_512, list(KEYS))
    assert Decimal(found["dollars"]) > 600 and set(found["memory"]) == {"1", "2", "4", "8"}


@pytest.mark.parametrize(("name", "kind"), [("fsdp", "FSDP"), ("deepspeed", "DEEPSPEED")])
def test_accelerates_own_classes_read_the_launchers_files(name: str, kind: str) -> None:
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.utils import DeepSpeedPlugin, FullyShardedDataParallelPlugin

    read = load_config_from_file(str(ROOT / "recipes" / "accelerate" / f"{name}.yaml"))
    assert (read.distributed_type.value, read.mixed_precision, read.num_processes) == (
        kind,
        "bf16",
        4,
    )
    if name == "fsdp":
        settings = {*FullyShardedDataParallelPlugin.__dataclass_fields__}
        assert {
            key for key in read.fsdp_config if not settings & {key, key.removeprefix("fsdp_")}
        } == set()
    else:
        assert read.deepspeed_config["zero_stage"] == 3
        assert {*read.deepspeed_config} <= {*DeepSpeedPlugin.__dataclass_fields__}
