"""Tokens a CPU second of GRPO's loss with the LM head on completions alone, as on a GPU.

    python -m benchmarks.head [--json] [--repeats 3]

TRL applies the head to the prompt, too, on a CPU, and drops the result; a training switches that
off. Each shape is measured by turns with and without, forwards and backwards, on one thread, with
random weights. The bar, for the language model: at least 1.4 times the tokens a CPU second. The
tiny Conductor has a vocabulary of 278, so its head is a smaller part of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import trl.trainer.utils as trl_utils
from benchmarks import results
from transformers import Qwen2Config, Qwen2ForCausalLM

from openconductor.training.grpo import score_only_completions


class Shape(NamedTuple):
    """A model, and the rows of a backward pass."""

    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    rows: int
    prompt: int
    completion: int


SHAPES = {
    # The vocabulary and the sizes of SmolLM2-135M, and the paper's prompt.
    "smollm2": Shape(49152, 576, 1536, 30, 9, rows=1, prompt=1633, completion=48),
    # A fresh tiny Conductor, as recipes/gym.toml has it.
    "tiny": Shape(278, 64, 192, 2, 4, rows=64, prompt=60, completion=20),
}


def main() -> None:
    parser = results.arguments(__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="by turns (default 3)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    bars: list[dict[str, Any]] = []
    figures: dict[str, dict[str, float]] = {}
    for name, shape in SHAPES.items():
        tokens = shape.rows * (shape.prompt + shape.completion)
        everything, completions = _measure(_make_step(shape), options.repeats)
        ratio = everything / completions
        figures[name] = {
            "tokens_a_cpu_s_everything": round(tokens / everything, 1),
            "tokens_a_cpu_s_completions": round(tokens / completions, 1),
            "ratio": round(ratio, 3),
        }
        if name == "smollm2":
            what = "SmolLM2: tokens a CPU second, head on completions / on everything"
            bars.append(results.at_least(what, ratio, 1.4))
    result = {
        "bars": bars,
        **figures,
        "versions": results.versions("torch", "transformers", "trl"),
        "machine": results.machine(),
    }
    results.show(result, as_json=options.json)


def _make_step(shape: Shape) -> Callable[[], None]:
    """Return a function that computes the gradients of a micro-batch."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        tie_word_embeddings=True,
    )
    model = Qwen2ForCausalLM(config)
    trl_utils.add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    ids = torch.randint(shape.vocabulary, (shape.rows, shape.prompt + shape.completion))
    labels = ids.clone()
    labels[:, : shape.prompt] = -100

    def step() -> None:
        model(input_ids=ids, labels=labels, fused_lm_head=True).loss.backward()
        model.zero_grad()

    return step


def _measure(step: Callable[[], None], repeats: int) -> tuple[float, float]:
    """Return the fewest CPU seconds of a step, with the head on everything and on completions."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(repeats):
        for compact in (False, True):
            trl_utils._use_triton = lambda device: False
            if compact:
                score_only_completions()
            before = time.process_time()
            step()
            seconds[compact].append(time.process_time() - before)
    return min(seconds[False]), min(seconds[True])


if __name__ == "__main__":
    main()
