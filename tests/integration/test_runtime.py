"""A checkpoint that training saved says without torch what it says with torch."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from transformers import Qwen2Config, Qwen2ForCausalLM  # noqa: E402

from openconductor.errors import ConfigError, JournalError  # noqa: E402
from openconductor.gym import bundled  # noqa: E402
from openconductor.gym.questions import draw_questions  # noqa: E402
from openconductor.gym.sampling import phrases  # noqa: E402
from openconductor.pool import Worker, WorkerPool  # noqa: E402
from openconductor.prompt import render_prompt  # noqa: E402
from openconductor.protocols import CallContext  # noqa: E402
from openconductor.providers.tiny import Checkpoint, TinyProvider  # noqa: E402
from openconductor.testing import Scripted  # noqa: E402
from openconductor.training import checkpoint as saving  # noqa: E402
from openconductor.training.checkpoint import save_conductor  # noqa: E402
from openconductor.training.completions import complete  # noqa: E402
from openconductor.training.models import build_model, build_tokenizer, load_model  # noqa: E402
from openconductor.training.train_config import ModelConfig, TrainConfig  # noqa: E402
from openconductor.types import Sampling, TrainedWorker  # noqa: E402

pytestmark = pytest.mark.train

CONFIG = TrainConfig.model_validate(
    {
        "prompt": {"template": "compact", "examples": "none", "access": "index"},
        "rollout": {"max_tokens": 24},
        "optim": {"bf16": False},
    }
)
CLOSE = 1e-4  # of a logit; float32 leaves some 1e-6
QUESTIONS = [question.text for question in draw_questions("train", 50, seed=1)]


SHARED_KEYS = {  # query heads share keys, embeddings are not tied, another rotary base
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 1,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "initializer_range": 0.2,
}


def fresh(kind: str) -> Qwen2ForCausalLM:
    """Return a model whose biases and norms are shaken, so that leaving one out shows."""
    tokenizer = build_tokenizer(phrases())
    if kind == "as the recipes build it":
        sizes = ModelConfig(base="", hidden=32, intermediate=64, initializer_range=0.2)
        model = build_model(sizes, tokenizer, seed=0)
    else:
        torch.manual_seed(1)
        config = Qwen2Config(vocab_size=len(tokenizer), **SHARED_KEYS)
        model = Qwen2ForCausalLM(config).float()
    torch.manual_seed(3)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                weights.add_(0.3 * torch.randn_like(weights))
    return model


@pytest.fixture(scope="module", params=["as the recipes build it", "shared keys"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "conductor"
    save_conductor(fresh(request.param), build_tokenizer(phrases()), CONFIG, folder)
    return folder


def test_a_model_whose_weights_are_not_numbers_is_not_saved(tmp_path: Path) -> None:
    model = fresh("as the recipes build it")
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with pytest.raises(ConfigError, match="logits differ by nan"):
        save_conductor(model, build_tokenizer(phrases()), CONFIG, tmp_path / "conductor")
    assert not (tmp_path / "conductor").exists()


@pytest.mark.parametrize("pieces", [[40], [37, 1, 1, 1], [10, 20, 10]], ids=str)
def test_the_logits_are_torchs_with_and_without_a_cache(folder: Path, pieces: list[int]) -> None:
    model, _ = load_model(folder)
    rng = np.random.default_rng(4)
    ids, mask = rng.integers(model.config.vocab_size, size=(4, 40)), np.ones((4, 40), np.int64)
    for row, length in enumerate((40, 3, 17, 39)):
        mask[row, : 40 - length] = 0
    places = np.maximum(mask.cumsum(1) - 1, 0)
    with torch.no_grad():
        expected = model.eval()(
            input_ids=torch.from_numpy(ids),
            attention_mask=torch.from_numpy(mask),
            position_ids=torch.from_numpy(places),
            use_cache=False,
        ).logits.numpy()
    checkpoint = Checkpoint.read(folder)
    cache, start = checkpoint.empty_cache(len(ids)), 0
    for end in np.cumsum(pieces).tolist():
        logits, cache = checkpoint.step(
            ids[:, start:end], mask[:, :end], places[:, start:end], cache
        )
        said = mask[:, end - 1] > 0  # at padding there is nothing to say
        np.testing.assert_allclose(logits[said], expected[said, end - 1], atol=CLOSE, rtol=0)
        start = end
    assert start == 40
    assert np.abs(expected).max() > 1


def test_tokens_and_texts_are_those_of_training(folder: Path) -> None:
    _, theirs = load_model(folder)
    ours = Checkpoint.read(folder).tokenizer
    lists = 'model_id = [0, 11]\nsubtasks = ["a", "b"]\naccess_list = [[], "all"]'
    for text in (*QUESTIONS, lists, "two  blanks\tand é, 漢 and 🙂"):
        ids = ours.encode(text, add_special_tokens=False).ids
        assert ids == theirs(text)["input_ids"]
        assert ours.decode([*ids, 1]) == theirs.decode([*ids, 1], skip_special_tokens=True)


async def test_greedy_completions_are_those_of_training(folder: Path) -> None:
    model, tokenizer = load_model(folder)
    provider = TinyProvider(folder)
    options = provider.prompt_options
    chats = [render_prompt(text, range(8), options=options) for text in QUESTIONS[:12]]
    texts = ["".join(turn.content for turn in chat) for chat in chats]
    expected = complete(model, tokenizer, texts, config=CONFIG, temperature=None, seed=0)
    calls = [provider.complete(chat, Sampling(), call=CallContext()) for chat in chats]
    for ours, theirs in zip(await asyncio.gather(*calls), expected, strict=True):
        assert (ours.text, ours.finish_reason) == (theirs.text, theirs.finish_reason)
        assert ours.usage.output_tokens == theirs.usage.output_tokens


def test_a_checkpoint_says_which_forms_of_the_answer_it_was_not_shown(folder, tmp_path) -> None:
    model, tokenizer = load_model(folder)
    forms = ("Answer in one word.",)
    save_conductor(model, tokenizer, CONFIG, tmp_path / "saved", answer_forms=forms)
    assert TinyProvider(tmp_path / "saved").prompt_options.answer_forms == forms
    assert TinyProvider(folder).prompt_options.answer_forms == ()


def test_a_checkpoint_holds_the_workers_unless_each_question_had_its_own(folder, tmp_path) -> None:
    model, tokenizer = load_model(folder)
    pool = WorkerPool([Worker(Scripted(model="m-1"), name="big")])
    for name, known in (("pool.toml", (TrainedWorker(0, "big", "m-1"),)), ("gym:drawn", ())):
        config = CONFIG.model_copy(update={"pool": name})
        saved = tmp_path / name
        save_conductor(model, tokenizer, config, saved, pool=pool)
        assert TinyProvider(saved).trained_with == known


# ── what is refused ───────────────────────────────────────────────────────────────────────────────
def test_a_checkpoint_that_the_runtime_computes_otherwise_is_not_handed_out(
    folder, tmp_path, monkeypatch
) -> None:
    model, tokenizer = load_model(folder)
    copied = shutil.copytree(folder, tmp_path / "conductor")
    before = (copied / "model.safetensors").read_bytes()
    other = Checkpoint.read(folder)
    monkeypatch.setattr(saving.Checkpoint, "read", lambda part: other)
    with torch.no_grad():
        model.model.layers[0].self_attn.v_proj.bias += 1.0
    with pytest.raises(ConfigError, match=r"logits differ by .*, expected at most 0\.001"):
        save_conductor(model, tokenizer, CONFIG, copied)
    assert (copied / "model.safetensors").read_bytes() == before
    assert not list(tmp_path.glob("*.part"))


def test_a_disk_that_fails_leaves_the_checkpoint_as_it_was(folder, tmp_path, monkeypatch) -> None:
    model, tokenizer = load_model(folder)
    copied = shutil.copytree(folder, tmp_path / "conductor")
    before = {path.name: path.read_bytes() for path in copied.iterdir()}

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(model), "save_pretrained", full)
    with pytest.raises(JournalError, match="No space left"):
        save_conductor(model, tokenizer, CONFIG, copied)
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == before
    assert not list(tmp_path.glob("*.part"))


# ── the bundled one ───────────────────────────────────────────────────────────────────────────────
def test_the_bundled_folder_is_given_whole_or_not_at_all(folder, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(bundled, "files", lambda package: tmp_path)
    with pytest.raises(
        ConfigError, match=r"found no conductor\.json, config\.json, model\.safetensors, tokenizer"
    ):
        bundled.bundled_folder()
    shutil.copytree(folder, tmp_path / "bundled")
    found = bundled.bundled_folder()
    assert TinyProvider(found).sampling.max_tokens == 24
    (found / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"found no tokenizer\.json;"):
        bundled.bundled_folder()
