"""Models, tokenizers and folders: whole or not at all."""

from __future__ import annotations

import random
import re
import shutil
import string
from pathlib import Path

import pytest
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerFast

from openconductor.errors import ConfigError, JournalError
from openconductor.gym.bundled import bundled_folder
from openconductor.gym.questions import KINDS, draw_question
from openconductor.gym.sampling import phrases, random_workflow, write_thought
from openconductor.prompt import render_workflow
from openconductor.training.checkpoint import (
    build_tokenizer,
    check_base,
    is_complete,
    last_checkpoint,
    load_model,
    whole_folder,
)

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


def test_what_is_no_model_is_refused_by_name(tmp_path: Path) -> None:
    for check in (check_base, load_model):
        with pytest.raises(ConfigError, match=r"model\.base .*could not be loaded"):
            check(str(tmp_path))


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
