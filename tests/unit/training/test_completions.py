"""Sampling of completions: equal prompts are read once, and write what they would write alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'train'")

import torch
from transformers import DynamicCache, Qwen2ForCausalLM

from openconductor.gym.sampling import phrases
from openconductor.training.completions import ROOM, complete, give_room
from openconductor.training.models import build_model, build_tokenizer
from openconductor.training.train_config import ModelConfig, TrainConfig

pytestmark = pytest.mark.train

SIZES = {"hidden": 32, "intermediate": 64, "layers": 2, "heads": 2, "positions": 256}
LONG = "What is 2 + 2 + 2 + 2 + 2?"
SHORT = "Sort the list."


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return build_tokenizer(phrases())


def texts(config: TrainConfig, tokenizer: Any, prompts: list[str], **options: Any) -> list[str]:
    """Return what a model of the recipe writes, read with all positions."""
    model = build_model(config.model, tokenizer, seed=3)
    options = {"temperature": None, "seed": 0, **options}
    completions = complete(model, tokenizer, prompts, config=config, **options)
    return [completion.text for completion in completions]


@pytest.fixture
def config() -> TrainConfig:
    model = ModelConfig(**SIZES, initializer_range=0.2)
    recipe = TrainConfig(name="sampling", pool="gym:S3", model=model)
    rollout = recipe.rollout.model_copy(update={"max_tokens": 12, "sample_batch": 8})
    optim = recipe.optim.model_copy(update={"bf16": False})
    return recipe.model_copy(update={"rollout": rollout, "optim": optim})


def test_equal_prompts_are_read_once(config, tokenizer, monkeypatch) -> None:
    read: list[tuple[int, ...]] = []
    forward = Qwen2ForCausalLM.forward

    def count(model: Any, input_ids: Any = None, **more: Any) -> Any:
        read.append(tuple(input_ids.shape))
        return forward(model, input_ids, **more)

    monkeypatch.setattr(Qwen2ForCausalLM, "forward", count)
    longest = len(tokenizer.encode(LONG))
    texts(config, tokenizer, [LONG, SHORT, LONG, SHORT, LONG])
    assert read[:2] == [(2, longest), (5, 1)]
    read.clear()
    texts(config, tokenizer, [LONG, SHORT])
    assert read[0] == (2, longest)


def test_equal_prompts_write_what_each_writes_alone(config, tokenizer) -> None:
    alone = [texts(config, tokenizer, [prompt])[0] for prompt in (LONG, SHORT)]
    assert alone[0] != alone[1]
    together = texts(config, tokenizer, [SHORT, LONG, SHORT, LONG, LONG])
    long, short = alone
    assert together == [short, long, short, long, long]


def test_a_cache_with_room_holds_what_one_without_holds_and_copies_less() -> None:
    """Through rows that leave, tokens that are taken back, and more tokens than there is room."""
    plain, roomy = DynamicCache(), DynamicCache()
    drawn = torch.Generator().manual_seed(0)
    rows = 4

    def add(count: int) -> None:
        keys, values = torch.rand((2, rows, 3, count, 8), generator=drawn)
        expected = plain.update(keys, values, 0)
        got = roomy.update(keys, values, 0)
        assert all(map(torch.equal, got, expected))

    add(5)
    give_room(roomy)
    seen: list[torch.Tensor] = []  # kept, so that no address is given to a second tensor
    for token in range(2 * ROOM):
        add(1)
        seen.append(roomy.layers[0].keys)
        if token == ROOM // 2:
            for cache in (plain, roomy):
                cache.batch_select_indices(torch.tensor([3, 1]))
            rows = 2
        if token == ROOM:
            for cache in (plain, roomy):
                cache.crop(-2)
    places = {keys.data_ptr() for keys in seen}
    assert len(places) == 3, "one for each time that there was no room"


def test_equal_prompts_are_sampled_apart(config, tokenizer) -> None:
    drawn = texts(config, tokenizer, [LONG] * 8, temperature=1.0)
    assert len(set(drawn)) > 1
    assert drawn == texts(config, tokenizer, [LONG] * 8, temperature=1.0)


def test_rows_that_are_over_leave_the_batch(config, tokenizer, monkeypatch) -> None:
    model = build_model(config.model, tokenizer, seed=3)
    prompts = [LONG, SHORT, "What is 2 + 2?", "Double the list.", "Reverse the list."]
    options: Any = {"config": config, "temperature": None, "seed": 0}
    whole = complete(model, tokenizer, prompts, **options)
    counts = Counter(token for got in whole for token in set(tokenizer.encode(got.text)[:-2]))
    frequent = next(token for token, count in counts.items() if count in (3, 4))
    rows: list[int] = []
    forward = Qwen2ForCausalLM.forward

    def count(model: Any, input_ids: Any = None, **more: Any) -> Any:
        rows.append(len(input_ids))
        return forward(model, input_ids, **more)

    # Texts now end with a token that most of them have early.
    model.generation_config.eos_token_id = frequent
    alone = [complete(model, tokenizer, [text], **options)[0] for text in prompts]
    assert len({completion.usage.output_tokens for completion in alone}) > 1
    monkeypatch.setattr(Qwen2ForCausalLM, "forward", count)
    assert complete(model, tokenizer, prompts, **options) == alone
    assert rows[-1] < rows[0] == len(prompts)
    assert rows == sorted(rows, reverse=True)


@pytest.mark.parametrize("window", [4, 512])
def test_a_cache_of_a_sliding_window_is_not_shared(config, tokenizer, window) -> None:
    """Layers that forget positions cannot give back the last one."""
    model = build_model(config.model, tokenizer, seed=3)
    model.config.use_sliding_window = True
    model.config.sliding_window = window
    model.config.layer_types = ["sliding_attention"] * 2
    model.model.has_sliding_layers = True
    options: Any = {"config": config, "temperature": None, "seed": 0}
    alone = [complete(model, tokenizer, [text], **options)[0].text for text in (LONG, SHORT)]
    together = complete(model, tokenizer, [LONG, SHORT, LONG], **options)
    assert [completion.text for completion in together] == [*alone, alone[0]]
