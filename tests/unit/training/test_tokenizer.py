"""The tiny Conductor's tokenizer."""

from __future__ import annotations

import random
import string
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from transformers import PreTrainedTokenizerFast

from openconductor.gym.questions import KINDS, draw_question
from openconductor.gym.sampling import random_workflow, write_thought
from openconductor.prompt import render_workflow
from openconductor.training.checkpoint import build_tokenizer

SAMPLE = 'Model 0\nQuestion: Take the smudged list 4 17 9, sort the list.\nsort the list: 3\nmodel_id = [3]\nsubtasks = ["sort the list"]\naccess_list = [[]]'  # noqa: E501


def test_every_completion_of_the_gym_survives_encoding_and_decoding() -> None:
    tokenizer = build_tokenizer()
    rng = random.Random(1)
    for index in range(200):
        question = draw_question("train", KINDS[index % 4], rng)
        workflow = random_workflow(rng, question, range(8))
        text = render_workflow(workflow, write_thought(workflow, question))
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert tokenizer.unk_token_id not in ids
        assert len(ids) <= 80


def test_printable_ascii_is_spelled_without_loss() -> None:
    tokenizer = build_tokenizer()
    assert tokenizer.decode(tokenizer.encode(string.printable)) == string.printable


def test_the_chosen_worker_is_one_token_right_behind_the_operation() -> None:
    tokenizer = build_tokenizer()
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("sort the list: 3; ")) == ["sort the list", ": 3", "; "]


def test_ids_survive_saving_and_loading(tmp_path: Path) -> None:
    tokenizer = build_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    loaded = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert loaded.encode(SAMPLE) == tokenizer.encode(SAMPLE)
    assert loaded.decode(loaded.encode(SAMPLE)) == SAMPLE
    assert loaded.pad_token_id != loaded.eos_token_id
    assert loaded.padding_side == "left"
    chat = [{"role": "user", "content": "Model 0\n"}]
    assert loaded.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == "Model 0\n"
