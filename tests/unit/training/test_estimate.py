"""The needs of a training, for the shape of the paper's model and none of its weights."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from huggingface_hub.errors import LocalEntryNotFoundError
from tests.learning.bases import save_base
from tests.learning.test_language_model import write_mix

from openconductor.evaluation.dry_run import missing_keys
from openconductor.pool import WorkerPool
from openconductor.prompt import PREVIOUS_LIMIT
from openconductor.training.checks import Checked, check_training
from openconductor.training.estimate import CallNeeds, ModelNeeds, call_needs
from openconductor.training.supervised import FIRST_ROUNDS_PLAYED
from openconductor.training.train_config import TrainConfig, load_train_config

pytestmark = pytest.mark.train

ROOT = Path(__file__).parents[3]


def is_training(path: Path) -> bool:
    """Return True if a recipe is of a training."""
    tables = tomllib.loads(path.read_text("utf-8"))
    return not {"systems", "task", "conductor"} & tables.keys()


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
SMALL_SHAPE = {"hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36}

SMALL_HEADS = {"num_attention_heads": 16, "num_key_value_heads": 2, "max_window_layers": 36}

QWEN_3B = QWEN_7B | SMALL_SHAPE | SMALL_HEADS | {"vocab_size": 151936, "tie_word_embeddings": True}
GIB = 2**30


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models without weights, ``7b`` and ``3b``, and local data as the recipes' tasks have them."""
    folder = tmp_path_factory.mktemp("dry-run")
    small = save_base(folder / "small", "qwen2")
    (small / "model.safetensors").unlink()
    config = json.loads((small / "config.json").read_text("utf-8"))
    del config["layer_types"]
    config.pop("head_dim", None)
    for name, shape in (("7b", QWEN_7B), ("3b", QWEN_3B)):
        shutil.copytree(small, folder / name)
        (folder / name / "config.json").write_text(json.dumps(config | shape), "utf-8")
    write_mix(folder / "mix")
    with (folder / "math500.jsonl").open("w") as file:
        for n in range(400):
            row = {"problem": f"What is {n} + 1?", "answer": str(n + 1), "unique_id": f"t/{n}"}
            print(json.dumps(row), file=file)
    return folder


@pytest.fixture(autouse=True, scope="module")
def without_keys() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)  # recipes name their pool from here
        for key in KEYS:
            patch.delenv(key, raising=False)
        yield


def overrides(data: Path, size: str, *more: str) -> list[str]:
    paths = {"model.base": data / size, "data.path": data / "mix"}
    paths["held_out.path"] = data / "math500.jsonl"
    settings = [f"{key}={json.dumps(str(path))}" for key, path in paths.items()]
    return [*settings, 'held_out.task="math500"', *more]


def check(data: Path, size: str, *more: str) -> Checked:
    return check_training(load(data, size, *more), offline=True)


def load(data: Path, size: str, *more: str) -> TrainConfig:
    recipe = ROOT / "recipes" / f"paper_{size}.toml"
    return load_train_config(recipe, overrides(data, size, *more))


def needs(data: Path, size: str, *more: str) -> ModelNeeds:
    checked = check(data, size, *more)
    assert checked.model is not None, checked.checklist
    return checked.model


def calls(data: Path, *more: str) -> CallNeeds:
    config = load(data, "7b", *more)
    return call_needs(config, WorkerPool.from_toml(config.pool), 400)


@pytest.fixture(scope="module")
def seven(data: Path) -> ModelNeeds:
    return needs(data, "7b")


def test_a_completion_has_room_for_a_plan(data: Path) -> None:
    checked = check(data, "7b", "rollout.max_tokens=10")
    faults = [line.text for line in checked.checklist.checks if line.state == "wrong"]
    assert any("rollout.max_tokens: got 10, expected at least" in fault for fault in faults)


def test_memory_is_that_of_the_models_shape(seven: ModelNeeds) -> None:
    assert seven.prompt_tokens is not None
    assert seven.parameters == seven.learnt == 7_615_616_512
    states = 16 * seven.parameters / GIB  # weight, gradient and two moments in float32
    copied = 2 * seven.parameters / GIB  # the weights that sample, in bfloat16
    token = 28 * 2 * 4 * 128 * 2 / GIB  # layers, keys and values, heads, units, bytes
    for cards, memory in seven.memory.items():
        cache = min(64, 256 // cards) * (seven.prompt_tokens + 1024) * token
        assert memory["weights, gradients, Adam"] == pytest.approx(states / cards)
        assert memory["sampling"] == pytest.approx(cache + copied)
        assert 1 < memory["activations"] < 4, "two rows with checkpointing"
        alone = 64 * (seven.prompt_tokens + 1024) * token + copied + 4 * seven.parameters / GIB
        assert memory["first card alone"] == pytest.approx(alone)
        assert 50 < alone < 54, "28 of weights, 14 of a copy, 9 of cache, on any number of cards"
        assert memory["peak"] == pytest.approx(max(states / cards + cache + copied, alone))
    assert seven.memory[8]["peak"] == seven.memory[8]["first card alone"]


def test_a_run_takes_three_checkpoints_and_its_models_on_the_disk(data: Path) -> None:
    for settings, learnt in ([], 7_615_616_512), (["model.lora_rank=8"], 20_185_088):
        asked = needs(data, "7b", *settings)
        assert asked.learnt == learnt
        models = 4 * asked.parameters
        if settings:
            models += 4 * learnt  # the adapters are also kept as they are
        assert asked.disk == pytest.approx((3 * 16 * learnt + models) / GIB)
    imitated = needs(data, "7b", "imitate.rounds=2")
    one_more = 4 * imitated.parameters / GIB
    assert imitated.disk - needs(data, "7b").disk == pytest.approx(one_more)


def test_transformers_samples_slower_than_vllm_and_no_faster_for_a_smaller_model(
    data: Path,
) -> None:
    by_vllm = needs(data, "3b", 'rollout.engine="vllm"').hours[1]
    plainly = needs(data, "3b").hours[1]
    tokens = 200 * 4 * 64 * 400
    fast = 2500 * 7e9 / needs(data, "3b").parameters
    assert plainly - by_vllm == pytest.approx((tokens / 700 - tokens / fast) / 3600)


def test_vllm_is_given_room_for_the_longest_prompt_and_its_completion(
    seven: ModelNeeds, data: Path
) -> None:
    assert seven.context is not None and seven.prompt_tokens is not None
    longest = seven.context - 1024
    assert 0 <= longest - seven.prompt_tokens < 200
    twice = needs(data, "7b", "rollout.rounds=2").context
    assert twice == seven.context + 1024 + PREVIOUS_LIMIT + 512
    assert needs(data, "3b").context is None, "transformers needs no room"
    checked = check(data, "7b", "rollout.max_tokens=32000")
    (fault,) = [check for check in checked.checklist.checks if check.state == "wrong"]
    assert "expected at most 32768 (the context of model.base)" in fault.text


def test_calls_and_dollars_follow_from_the_recipe_and_the_pools_prices(
    seven: ModelNeeds, data: Path
) -> None:
    measured = 64 + 2 * 400
    asked = calls(data)
    assert asked.rollouts == 200 * 4 * 64 + measured
    assert (asked.calls, asked.tokens) == (3 * asked.rollouts, 3 * asked.rollouts * 1600)
    prices = [worker.price for _, worker in WorkerPool.from_toml("recipes/pools/paper.toml")]
    a_call = sum(900 * price.input + 700 * price.output for price in prices) / 7 / 1_000_000
    assert float(asked.dollars or 0) == pytest.approx(float(asked.calls * a_call))
    waiting = 200 * 3 * 30 / 3600
    hours = seven.hours
    assert hours[1] > hours[2] > hours[8] > waiting, "more cards do not make workers faster"


def test_first_rounds_of_the_cold_start_and_held_out_second_rounds_are_counted(data: Path) -> None:
    alone = calls(data, "cold_start.steps=5").rollouts
    both = calls(data, "cold_start.steps=5", "rollout.rounds=2").rollouts
    assert both == alone + 2 * 400 + FIRST_ROUNDS_PLAYED
    assert calls(data, "rollout.rounds=2").rollouts == alone + 2 * 400, "no cold start"


@pytest.mark.parametrize(
    ("settings", "rollouts"),
    [
        (["rollout.rounds=2", "rollout.iterations=20"], 20 * 4 * 64 + 4 * 400),
        (["imitate.rounds=3", "rollout.iterations=0"], 3 * 256 * 4 + 2 * 400),
    ],
)
def test_rounds_and_imitation_have_rollouts_of_their_own(
    data: Path, settings: list[str], rollouts: int
) -> None:
    assert calls(data, *settings).rollouts == rollouts + 64
    assert (needs(data, "7b", *settings).prompt_tokens or 0) > 1000


def test_the_heads_of_the_recipes_have_the_figures_of_the_dry_run(
    seven: ModelNeeds, data: Path
) -> None:
    """Within a GiB: another tokenizer makes the prompt a little longer or shorter."""
    asked = calls(data)
    three, adapted = needs(data, "3b"), needs(data, "3b", "model.lora_rank=32")
    elsewhere = needs(data, "7b", 'rollout.engine="vllm_server"')
    figures = [
        ("7b", r"cache 9\): (\d+) GiB", seven.memory[4]["peak"]),
        ("7b", r"2 x H100 it is (\d+) GiB", seven.memory[2]["peak"]),
        ("7b", r"then it is (\d+)\.", elsewhere.memory[2]["peak"]),
        ("7b", r"Hours: (\d+) on four cards", seven.hours[4]),
        ("7b", r"= ([\d,]+) calls", asked.calls),
        ("7b", r"equally often, they are (\d+)", asked.dollars),
        ("3b", r"Dollars: (\d+)", asked.dollars),
        ("3b", r"rows sampled at a time: (\d+) GiB", three.memory[1]["peak"]),
        ("3b", r"On two, (\d+) GiB each", three.memory[2]["peak"]),
        ("3b", r"Hours: (\d+) on one card", three.hours[1]),
        ("3b", r"it takes (\d+) GiB", adapted.memory[1]["peak"]),
        ("3b", r"(\d+) of them sampling", 200 * 4 * 64 * 400 / 700 / 3600),
    ]
    for size, pattern, expected in figures:
        text = (ROOT / "recipes" / f"paper_{size}.toml").read_text("utf-8").replace("#", " ")
        match = re.search(pattern, " ".join(text.split()))
        assert match, pattern
        assert float(match[1].replace(",", "")) == pytest.approx(float(expected), abs=1), pattern


def test_missing_data_pools_and_tokenizers_are_found_all_at_once(
    data: Path, tmp_path: Path
) -> None:
    nowhere = str(tmp_path / "nowhere")
    settings = [f"pool={nowhere}.toml", f"data.path={nowhere}", f"held_out.path={nowhere}"]
    checked = check(data, "7b", *settings)
    faults = [check for check in checked.checklist.checks if check.state == "wrong"]
    assert [fault.name for fault in faults] == ["pool", "data", "held out"]
    assert all("nowhere" in fault.text for fault in faults)
    assert "expected a folder of math.jsonl" in faults[1].text

    shutil.copy(data / "7b" / "config.json", tmp_path)
    checked = check(data, "7b", f"model.base={tmp_path}")
    (fault,) = [check for check in checked.checklist.checks if check.state == "wrong"]
    assert fault.name == "model"
    assert "could not be loaded" in fault.text or "has no chat template" in fault.text


def test_variables_that_only_headers_name_are_missing_too(data: Path, tmp_path: Path) -> None:
    worker = """[[worker]]
name = "w"
model = "m"
base_url = "http://127.0.0.1:9/v1"
headers = { X-Login = "me $A_NAME_OF_HEADERS" }
query = { sig = "$A_NAME_OF_QUERY" }
"""
    (tmp_path / "pool.toml").write_text(worker, "utf-8")
    pool = f"pool={json.dumps(str(tmp_path / 'pool.toml'))}"
    expected = ("A_NAME_OF_HEADERS", "A_NAME_OF_QUERY")
    checked = check(data, "7b", pool)
    assert checked.pool is not None
    assert missing_keys(checked.pool) == expected


def test_a_training_names_all_faults_before_torch_is_imported(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        'pool = "none.toml"\n[data]\ntask = "maths"\n[held_out]\ntask = "rlpr"\nsplit = "dev"\n'
        'path = {rlpr = "none.jsonl"}\n'
    )
    program = (
        "import sys\nfrom openconductor.cli import main\n"
        f"code = main(['train', {str(recipe)!r}, '--out', {str(tmp_path / 'run')!r}])\n"
        "print(code, 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.stdout.split() == ["2", "False"], ended.stderr
    for fault in ("none.toml: no such file", "nearest: 'math'", "none.jsonl: no such file"):
        assert fault in ended.stderr
    assert not (tmp_path / "run").exists()


def test_the_command_prints_the_checks_and_the_estimate_and_the_same_as_json(
    data: Path, run
) -> None:
    command = ["train", "recipes/paper_7b.toml", *overrides(data, "7b"), "--dry-run", "--offline"]
    printed = run(*command)
    assert printed.code == 0
    assert "7.62 B parameters" in printed.out and "8 GPUs" in printed.out
    assert "several GPUs, vLLM and training all weights are untried" in " ".join(
        printed.out.split()
    )
    assert "Warning" not in printed.err
    values = run(*command, "--json").json()
    assert (values["parameters"], values["missing_keys"]) == (7_615_616_512, list(KEYS))
    assert Decimal(values["dollars"]) > 600 and set(values["memory"]) == {"1", "2", "4", "8"}
    absent = [check["name"] for check in values["checks"] if check["state"] == "absent"]
    assert absent[0] == "keys" and set(absent) <= {"keys", "trackers", "engine"}
    assert run(*command[:-1]).code == 1, "without --offline what is absent is a failure"


RECIPES = sorted(path for path in (ROOT / "recipes").glob("*.toml") if is_training(path))
RECIPES.remove(ROOT / "recipes" / "mine.toml")  # over files of the user's: tests/learning/test_mine
MADE_POOLS = [path for path in RECIPES if path.stem.startswith("specialists")]  # by a script
for path in MADE_POOLS:
    RECIPES.remove(path)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_each_shipped_recipe_starts_but_for_what_this_machine_lacks(
    recipe: Path, run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a dry run offline fetches nothing")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", refuse)
    printed = run("train", recipe, "--dry-run", "--offline", "--json")
    assert printed.code == 0
    values = printed.json()
    states = {check["name"]: check["state"] for check in values["checks"]}
    assert "wrong" not in states.values()
    assert states["data"] == states["held out"] == states["settings"] == "ready"
    assert values["calls"] > 1000
    fresh = states["model.base"] == "ready"
    assert fresh == (not load_train_config(recipe).model.base)
    assert ("parameters" in values) == fresh
    lacking = [check["text"] for check in values["checks"] if check["state"] == "absent"]
    remedies = ("network", "GPU", "not set in the environment", "the recipe says what makes it")
    assert [text for text in lacking if not any(word in text for word in remedies)] == []


@pytest.mark.parametrize("recipe", MADE_POOLS, ids=lambda path: path.stem)
def test_the_recipes_of_specialists_lack_their_pool_alone(recipe: Path, run) -> None:
    printed = run("train", recipe, "--dry-run", "--offline", "--json")
    [wrong] = [check for check in printed.json()["checks"] if check["state"] == "wrong"]
    assert wrong["name"] == "pool"
    assert "the first lines of the recipe say what makes it" in wrong["text"]
    printed = run("train", recipe, 'pool="gym"', "--dry-run", "--offline", "--json")
    states = {check["name"]: check["state"] for check in printed.json()["checks"]}
    assert "wrong" not in states.values()
    assert states["data"] == states["held out"] == states["settings"] == "ready"


def test_a_hub_that_cannot_be_reached_is_named_as_a_missing_network(
    run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise LocalEntryNotFoundError("An error happened while trying to locate the file")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", fail)
    monkeypatch.setattr("transformers.utils.hub.hf_hub_download", fail)
    printed = run("train", "recipes/open_small.toml", "--dry-run", "--json")
    assert printed.code == 1, "without --offline what is absent is a failure"
    checks = {check["name"]: check for check in printed.json()["checks"]}
    for name in ("questions", "model.base"):
        assert checks[name]["state"] == "absent" and "needs the network" in checks[name]["text"]


def test_a_runs_folder_is_checked_before_torch_is_imported(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", "utf-8")
    program = (
        "import sys\nfrom openconductor.cli import main\n"
        f"code = main(['train', 'recipes/gym.toml', '--out', {str(tmp_path)!r}])\n"
        "print(code, 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.stdout.split() == ["2", "False"], ended.stderr
    assert "is not empty and holds no run" in ended.stderr


@pytest.mark.parametrize(("name", "kind"), [("fsdp", "FSDP"), ("deepspeed", "DEEPSPEED")])
def test_accelerates_own_classes_read_the_launchers_files(name: str, kind: str) -> None:
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.utils import DeepSpeedPlugin, FullyShardedDataParallelPlugin

    config = load_config_from_file(str(ROOT / "recipes" / "accelerate" / f"{name}.yaml"))
    assert (config.distributed_type.value, config.mixed_precision) == (kind, "bf16")
    assert config.num_processes == 4
    if name == "fsdp":
        known = FullyShardedDataParallelPlugin.__dataclass_fields__
        keys = config.fsdp_config
        assert [key for key in keys if not known.keys() & {key, key.removeprefix("fsdp_")}] == []
    else:
        assert config.deepspeed_config["zero_stage"] == 3
        assert config.deepspeed_config.keys() <= DeepSpeedPlugin.__dataclass_fields__.keys()
