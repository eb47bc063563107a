"""The rows that TRL walks through: an example's prompt and what the reward needs to know of it.

In: examples. Out: one dictionary an example, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from transformers import PreTrainedTokenizerBase

from openconductor.pool import WorkerPool
from openconductor.prompt import render_prompt
from openconductor.training.config import TrainConfig
from openconductor.training.examples import Example
from openconductor.types import Message, Question

Row = dict[str, object]


def training_rows(examples: Sequence[Example], config: TrainConfig, pool: WorkerPool) -> list[Row]:
    """One row an example: prompt, id, question, reference, kind."""
    return [
        {
            "prompt": render_chat(example.problem.question, config, pool),
            "problem_id": example.problem.id,
            "question": example.problem.question,
            "reference": example.problem.reference,
            "kind": example.kind,
        }
        for example in examples
    ]


def render_chat(question: Question, config: TrainConfig, pool: WorkerPool) -> list[dict[str, str]]:
    """The Conductor's prompt as the plain dictionaries of a chat template."""
    messages: Sequence[Message] = render_prompt(
        question, pool.ordinals, options=config.prompt.options(), max_steps=config.rollout.max_steps
    )
    return [{"role": message.role, "content": message.content} for message in messages]


def write_prompt(tokenizer: PreTrainedTokenizerBase, chat: list[dict[str, str]]) -> str:
    """A chat as the text that the model completes."""
    return cast("str", tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
