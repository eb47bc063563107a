"""Models, tokenizers and folders: whole or not at all."""

from __future__ import annotations

import json
import random
import re
import shutil
import string
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerFast
from transformers.integrations import deepspeed

from openconductor.errors import ConfigError, JournalError
from openconductor.gym.bundled import bundled_folder
from openconductor.gym.questions import KINDS, draw_question
from openconductor.gym.sampling import phrases, random_workflow, write_thought
from openconductor.gym.workers import gym_pool
from openconductor.prompt import render_workflow
from openconductor.training.checkpoint import (
    COMPLETE,
    check_checkpoint,
    check_engine,
    is_complete,
    last_checkpoint,
    save_trained,
    unsharded,
    whole_folder,
)
from openconductor.training.models import (
    build_tokenizer,
    check_base,
    digest_base,
    load_model,
    with_adapters,
)
from openconductor.training.train_config import ModelConfig, TrainConfig

pytestmark = pytest.mark.train


# ── models ────────────────────────────────────────────────────────────────────────────────────────
def test_a_checkpoint_whose_weights_do_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    copied = shutil.copytree(bundled_folder(), tmp_path / "conductor")
    model, tokenizer = load_model(copied)
    assert model.config.vocab_size == len(tokenizer)
    weights = load_file(copied / "model.safetensors")
    norm = weights.pop("model.norm.weight")
    for changed, said in (
        (weights, r"missing keys.*norm\.weight"),
        ({**weights, "model.norm.weight": norm, "spare": norm.clone()}, r"unexpected keys.*spare"),
    ):
        save_file(changed, copied / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(ConfigError, match=said):
            load_model(copied)


def test_adapters_are_drawn_by_the_seed() -> None:
    def draw(seed: int) -> torch.Tensor:
        model, _ = load_model(bundled_folder())
        adapted = with_adapters(model, ModelConfig(lora_rank=2), seed=seed)
        return next(weight for name, weight in adapted.named_parameters() if "lora_A" in name)

    first = draw(1)
    torch.rand(3)
    assert torch.equal(first, draw(1)) and not torch.equal(first, draw(2))


def test_what_is_no_model_is_refused_by_name(tmp_path: Path) -> None:
    for check in (check_base, load_model):
        with pytest.raises(ConfigError, match=r"model\.base .*could not be loaded"):
            check(str(tmp_path))


def test_checking_a_base_reads_none_of_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(bundled_folder())
    digest = digest_base(folder)
    monkeypatch.setattr("openconductor.training.models.weights_digest", lambda _: 1 / 0)
    assert check_base(folder) == ""
    with pytest.raises(ZeroDivisionError):
        digest_base(folder)
    assert len(digest) == 32


# ── the tokenizer ─────────────────────────────────────────────────────────────────────────────────
def test_every_completion_of_the_gym_survives_encoding_and_decoding() -> None:
    tokenizer = build_tokenizer(phrases())
    rng = random.Random(1)
    for index in range(200):
        question = draw_question("train", KINDS[index % 4], rng)
        workflow = random_workflow(rng, question, range(8))
        text = render_workflow(workflow, write_thought(workflow, question))
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert tokenizer.unk_token_id not in ids
        assert len(ids) <= 80
    assert tokenizer.decode(tokenizer.encode(string.printable)) == string.printable
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("sort the list: 3; ")) == [
        "sort the list",
        ": 3",
        "; ",
    ]


def test_ids_survive_saving_and_loading(tmp_path: Path) -> None:
    tokenizer = build_tokenizer(phrases())
    tokenizer.save_pretrained(tmp_path)
    loaded = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    question = "Model 0\nQuestion: Take the smudged list 4 17 9, sort the list.\n"
    sample = question + "model_id = [3]\naccess_list = [[]]"
    assert loaded.encode(sample) == tokenizer.encode(sample)
    assert loaded.decode(loaded.encode(sample)) == sample
    assert (loaded.pad_token_id, loaded.eos_token_id, loaded.padding_side) == (0, 1, "left")
    chat = [{"role": "user", "content": "Model 0\n"}]
    assert (
        loaded.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == "Model 0\n"
    )
    bundled = PreTrainedTokenizerFast.from_pretrained(bundled_folder())
    assert bundled.get_vocab() == tokenizer.get_vocab(), (
        "what the bundled Conductor learnt is what is built today"
    )


# ── folders ───────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(28, "No space left on device"), JournalError),
        (
            RuntimeError("[enforce fail] . PytorchStreamWriter failed writing file data/0"),
            JournalError,
        ),
        (RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos"), JournalError),
        (SafetensorError("Error while serializing: I/O error: No space left"), JournalError),
        (RuntimeError("a bug"), RuntimeError),
    ],
)
def test_a_folder_whose_filling_fails_does_not_appear_and_the_old_one_stays(
    tmp_path: Path, error: Exception, kind: type[Exception]
) -> None:
    target = tmp_path / "conductor"
    with whole_folder(target) as part:
        (part / "weights").write_text("old", encoding="utf-8")

    def fail() -> None:
        with whole_folder(target, size=3_000_000_000) as part:
            (part / "weights").write_text("half", encoding="utf-8")
            raise error

    with pytest.raises(kind) as caught:
        fail()
    if kind is JournalError:
        message = str(caught.value)
        assert message.startswith(f"{target}: could not be written: ") and "enforce" not in message
        assert re.search(r"[\d.]+ MB are free there, about 3,000\.0 MB are needed\.", message)
        assert message.endswith("goes on from its last checkpoint with --resume")
    assert (target / "weights").read_text(encoding="utf-8") == "old"
    assert is_complete(target)
    assert [path.name for path in tmp_path.iterdir()] == ["conductor"]


def test_an_unfinished_checkpoint_is_removed_and_the_last_whole_one_found(tmp_path: Path) -> None:
    for done, whole in ((2, True), (10, True), (12, False)):
        (tmp_path / f"checkpoint-{done}").mkdir()
        if whole:
            (tmp_path / f"checkpoint-{done}" / "complete").touch()
    assert last_checkpoint(tmp_path) == (tmp_path / "checkpoint-10", 10)
    assert not (tmp_path / "checkpoint-12").exists()
    assert last_checkpoint(tmp_path / "nothing") == (None, 0)


# ── several processes ─────────────────────────────────────────────────────────────────────────────
ENGINES = {
    "plain": {},
    "FSDP1": {"ACCELERATE_USE_FSDP": "true"},
    "FSDP2": {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"},
    "ZeRO-2": {"ACCELERATE_USE_DEEPSPEED": "true"},
    "ZeRO-3": {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"},
}


@pytest.fixture
def set_engine(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Set the variables that ``accelerate launch`` sets for an engine."""
    names = {name for variables in ENGINES.values() for name in variables}

    def change(engine: str) -> None:
        for name in names:
            monkeypatch.delenv(name, raising=False)
        for name, value in ENGINES[engine].items():
            monkeypatch.setenv(name, value)

    return change


@pytest.mark.parametrize(
    ("before", "after", "processes", "wanted"),
    [
        ("plain", "plain", 4, ""),
        ("FSDP2", "FSDP2", 4, ""),
        ("ZeRO-3", "ZeRO-3", 2, ""),
        ("plain", "FSDP2", 2, "the engine plain"),
        ("FSDP2", "plain", 2, "the engine FSDP2"),
        ("FSDP1", "FSDP2", 2, "the engine FSDP1"),
        ("ZeRO-2", "ZeRO-2", 4, "the engine ZeRO-2 with 2 processes"),
        ("ZeRO-2", "ZeRO-3", 2, "the engine ZeRO-2 with 2 processes"),
    ],
)
def test_a_checkpoint_goes_on_with_its_engine_and_under_zero_with_as_many_processes(
    before: str,
    after: str,
    processes: int,
    wanted: str,
    tmp_path: Path,
    set_engine: Callable[[str], None],
) -> None:
    mark = json.dumps({"engine": before, "processes": 2})
    (tmp_path / "checkpoint-3").mkdir()
    (tmp_path / "checkpoint-3" / COMPLETE).write_text(mark, "utf-8")
    set_engine(after)
    if not wanted:
        check_checkpoint(tmp_path, processes)
        return
    message = f"checkpoint-3: requires {wanted}, got {after} with {processes};.* or remove "
    with pytest.raises(ConfigError, match=message):
        check_checkpoint(tmp_path, processes)


@pytest.mark.parametrize("before", ["FULL_STATE_DICT", "SHARDED_STATE_DICT"])
def test_a_checkpoint_of_fsdp_goes_on_with_its_type_of_state_dict(
    before: str,
    tmp_path: Path,
    set_engine: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mark = json.dumps({"engine": "FSDP2", "processes": 2, "state_dict": before})
    (tmp_path / "checkpoint-3").mkdir()
    (tmp_path / "checkpoint-3" / COMPLETE).write_text(mark, "utf-8")
    set_engine("FSDP2")
    monkeypatch.setenv("FSDP_STATE_DICT_TYPE", before)
    check_checkpoint(tmp_path, 4)
    other = {"FULL_STATE_DICT": "SHARDED_STATE_DICT"}.get(before, "FULL_STATE_DICT")
    monkeypatch.setenv("FSDP_STATE_DICT_TYPE", other)
    with pytest.raises(ConfigError, match=f"requires .* {before}, got FSDP2 and {other}; resume"):
        check_checkpoint(tmp_path, 2)


def test_an_engine_that_cannot_learn_here_or_could_not_save_is_refused(
    set_engine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    set_engine("plain")
    assert check_engine() == "plain"
    set_engine("FSDP2")
    with pytest.raises(ConfigError, match="FSDP2, which needs GPUs, and this machine has none"):
        check_engine()
    set_engine("ZeRO-3")
    with pytest.raises(ConfigError, match="zero3_save_16bit_model: true"):
        check_engine()
    monkeypatch.setenv("ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL", "true")
    assert check_engine() == "ZeRO-3"


def test_one_process_loads_whole_models_while_zero_3_shares_them() -> None:
    class Zero3:
        def is_zero3(self) -> bool:
            return True

    config = Zero3()
    deepspeed.set_hf_deepspeed_config(config)
    try:
        assert deepspeed.is_deepspeed_zero3_enabled()
        with unsharded():
            assert not deepspeed.is_deepspeed_zero3_enabled()
        assert deepspeed.is_deepspeed_zero3_enabled()
    finally:
        deepspeed.unset_hf_deepspeed_config()


def test_weights_that_are_tied_are_saved_once_when_an_engine_gathers_them_twice(
    tmp_path: Path, set_engine: Callable[[str], None]
) -> None:
    model, tokenizer = load_model(bundled_folder())
    gathered = {name: weight.clone() for name, weight in model.state_dict().items()}
    assert "lm_head.weight" in gathered
    accelerator = SimpleNamespace(
        is_main_process=True,
        unwrap_model=lambda model: model,
        get_state_dict=lambda _: gathered,
        wait_for_everyone=lambda: None,
    )
    trainer: Any = SimpleNamespace(accelerator=accelerator, model=model, deepspeed=None)
    set_engine("FSDP2")
    folder = tmp_path / "conductor"
    save_trained(trainer, tokenizer, TrainConfig(), folder, gym_pool(0))
    saved = load_file(folder / "model.safetensors")
    del gathered["lm_head.weight"]
    assert saved.keys() == gathered.keys()
    assert all(torch.equal(saved[name], weight) for name, weight in gathered.items())
    load_model(folder)
