"""Small language models as a hub has them.

They have BPE tokenizers, chat templates, bf16 weights and sampling settings.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from openconductor.prompt import PromptOptions, render_prompt
from openconductor.training.supervised import FIRST, LATER, THOUGHTS

CHAT = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WITHOUT_SYSTEM = (
    "{% for message in messages %}{% set asks = message['role'] == 'user' %}"
    "{% if asks != (loop.index0 % 2 == 0) %}{{ raise_exception('user first, in turn') }}{% endif %}"
    "<|im_start|>{{ 'user' if asks else 'model' }}\n{{ message['content'] | trim }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>model\n{% endif %}"
)
"""A template that refuses system turns."""
THINKING = CHAT + (
    "{% if add_generation_prompt and enable_thinking is defined and not enable_thinking %}"
    "<think>\n\n</think>\n\n{% endif %}"
)
"""A template that can tell the model not to think."""
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
LISTS = 'model_id = [0, 1]\nsubtasks = ["", ""]\naccess_list = [[], "all"]\n'


def save_base(
    folder: Path,
    family: Literal["qwen2", "llama", "gemma2"],
    *,
    hidden: int = 32,
    positions: int = 4096,
    servable: bool = False,
    texts: tuple[str, ...] = (),
    template: str = CHAT,
    shape: Mapping[str, int] = MappingProxyType({}),
) -> Path:
    """Write a random base model, whose tokenizer was trained on our prompts.

    Servers give every qwen2 the splitting of Qwen's tokenizers; where ``servable``, ours has it
    too, as a real one has. ``shape`` replaces sizes of the model.
    """
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if servable and family == "qwen2":
        backend.normalizer = normalizers.NFC()
        words = pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated")
        bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([words, bytes_])
    backend.decoder = decoders.ByteLevel()
    prompt = "\n".join(
        message.content for message in render_prompt("What?", range(7), options=PromptOptions())
    )
    trainer = trainers.BpeTrainer(
        vocab_size=3000,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    backend.train_from_iterator([prompt, *FIRST, *LATER, *THOUGHTS, LISTS, *texts] * 3, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
    )
    tokenizer.chat_template = template
    sizes = {
        "vocab_size": len(tokenizer),
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": positions,
        "tie_word_embeddings": True,
        "initializer_range": 0.05,
    } | dict(shape)
    torch.manual_seed(0)
    if family == "gemma2":
        model = Gemma2ForCausalLM(Gemma2Config(**sizes, head_dim=hidden // 4))
    elif family == "llama":
        model = LlamaForCausalLM(LlamaConfig(**sizes))
    else:
        model = Qwen2ForCausalLM(Qwen2Config(**sizes))
    ends = [
        tokenizer.convert_tokens_to_ids("<|im_end|>"),
        tokenizer.convert_tokens_to_ids("<|endoftext|>"),
    ]
    model.generation_config = GenerationConfig(
        eos_token_id=ends,
        pad_token_id=ends[1],
        do_sample=True,
        top_p=0.8,
        top_k=20,
        repetition_penalty=1.05,
    )
    model.bfloat16().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@contextmanager
def served(folder: Path, log: Path) -> Iterator[str]:
    """``transformers serve`` on a folder; yields where its API begins."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        str(Path(sys.executable).with_name("transformers")),
        "serve",
        str(folder),
        "--device",
        "cpu",
    ]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with log.open("wb") as stream:
        server = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            env=environment,
            stdout=stream,
            stderr=stream,
        )
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                assert server.poll() is None, log.read_text("utf-8")
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(30)
