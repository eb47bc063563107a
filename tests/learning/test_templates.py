"""Chat templates: trained, asked and served with the same text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.learning.bases import THINKING, WITHOUT_SYSTEM, save_base
from tests.learning.runs import recipe
from transformers import AutoTokenizer

import openconductor as oc
from openconductor.cli import main
from openconductor.errors import ConfigError, WorkflowError
from openconductor.gym.workers import gym_pool
from openconductor.prompt import render_prompt
from openconductor.providers.transformers_lm import TransformersProvider
from openconductor.training.run import train

pytestmark = pytest.mark.train

RECIPE = """
prompt = { template = "full", examples = "none" }
rollout = { iterations = 1, questions = 2, completions = 2, max_tokens = 8, max_steps = 2 }
optim = { micro_batch = 4, bf16 = false, checkpointing = false }
start = { validity = 0.0, prompts = 2, workflows = 2 }
held_out = { questions = 2 }
"""
THINKLESS = "model = { chat_template_kwargs = { enable_thinking = false } }\n"


def served_prompt(folder: Path) -> tuple[str, str]:
    """Return the prompt as a server of the folder writes it, and the text of its system turn."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    conductor = oc.Conductor(folder, pool=gym_pool())
    turns = render_prompt("2 + 3?", conductor.pool.ordinals, options=conductor.prompt, max_steps=2)
    chat = [{"role": turn.role, "content": turn.content} for turn in turns]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    return text, turns[0].content


def prompt_in_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the prompt that the model of a folder is given in this process."""
    given: list[str] = []
    encode = TransformersProvider._encode

    def watch(self: TransformersProvider, row: object) -> list[int]:
        ids = encode(self, row)  # type: ignore[arg-type]
        given.append(self._tokenizer.decode(ids))
        return ids

    monkeypatch.setattr(TransformersProvider, "_encode", watch)
    conductor = oc.Conductor(folder, pool=gym_pool(), max_steps=2)
    episode = conductor.ask_sync("2 + 3?")
    assert isinstance(episode.error, WorkflowError), "it wrote something, though no plan"
    return given[0]


def test_a_system_turn_is_folded_where_the_template_refuses_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = save_base(tmp_path / "base", "gemma2", template=WITHOUT_SYSTEM)
    run = tmp_path / "run"
    train(recipe(RECIPE, base=base), run)
    assert main(["export", str(run), "--dtype", "float32"]) == 0
    text, system = served_prompt(run / "export")
    assert text.startswith(f"<|im_start|>user\n{system}\n\n") and "2 + 3?" in text
    assert prompt_in_process(run / "conductor", monkeypatch) == text


def test_options_of_the_template_stay_set_in_what_was_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = save_base(tmp_path / "base", "qwen2", template=THINKING, servable=True)
    run = tmp_path / "run"
    train(recipe(THINKLESS + RECIPE, base=base), run)
    told = json.loads((run / "conductor" / "conductor.json").read_text("utf-8"))
    assert told["chat_template_kwargs"] == {"enable_thinking": False}
    text, _ = served_prompt(run / "conductor")
    assert text.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert prompt_in_process(run / "conductor", monkeypatch) == text


def test_an_option_that_the_template_does_not_read_is_refused(tmp_path: Path) -> None:
    base = save_base(tmp_path / "base", "llama")
    with pytest.raises(ConfigError, match=r"'enable_thinking', which the chat template of .*base"):
        train(recipe(THINKLESS + RECIPE, base=base), tmp_path / "run")
