"""A checkpoint exported and run without torch says what it says with torch."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")

import onnx  # noqa: E402
from transformers import Qwen2Config, Qwen2ForCausalLM  # noqa: E402

from openconductor import storage  # noqa: E402
from openconductor.conductor import Conductor  # noqa: E402
from openconductor.errors import ConfigError, JournalError  # noqa: E402
from openconductor.gym import bundled  # noqa: E402
from openconductor.gym.questions import draw_questions  # noqa: E402
from openconductor.gym.workers import gym_pool  # noqa: E402
from openconductor.prompt import PromptOptions, render_prompt  # noqa: E402
from openconductor.protocols import CallContext  # noqa: E402
from openconductor.providers.onnx_checkpoint import Checkpoint  # noqa: E402
from openconductor.providers.onnx_lm import OnnxProvider  # noqa: E402
from openconductor.training import export  # noqa: E402
from openconductor.training.config import ModelConfig  # noqa: E402
from openconductor.training.export import export_onnx  # noqa: E402
from openconductor.training.model import build_model, load_model  # noqa: E402
from openconductor.training.policy import complete  # noqa: E402
from openconductor.training.tokenizer import build_tokenizer  # noqa: E402
from openconductor.types import Message, Sampling  # noqa: E402

pytestmark = pytest.mark.train

COMPACT = PromptOptions(template="compact", examples="none", access="index")
DESCRIBED = {
    "prompt": {"template": "compact", "examples": "none", "access": "index"},
    "max_tokens": 24,
    "max_steps": 5,
}
CLOSE = 1e-4  # of a logit; float32 leaves some 1e-6


def write_checkpoint(folder: Path, model: Qwen2ForCausalLM) -> Path:
    """Save a model as training does; biases and norms are shaken first, so that leaving one out shows."""
    torch.manual_seed(3)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                weights.add_(0.3 * torch.randn_like(weights))
    model.save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    (folder / "conductor.json").write_text(json.dumps(DESCRIBED))
    return folder


def shared_keys(words: int) -> Qwen2ForCausalLM:
    """A Qwen2 that the recipes do not build: query heads share keys, embeddings are not tied, another rotary base."""
    torch.manual_seed(1)
    config = Qwen2Config(
        vocab_size=words,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=1,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
        initializer_range=0.2,
    )
    return Qwen2ForCausalLM(config).float()


@pytest.fixture(scope="module", params=["as the recipes build it", "shared keys"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = build_tokenizer()
    if request.param == "shared keys":
        model = shared_keys(len(tokenizer))
    else:
        model = build_model(ModelConfig(base="", hidden=32, intermediate=64, initializer_range=0.2), tokenizer, seed=0)
    folder = write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "conductor", model)
    assert export_onnx(folder) == folder / "model.onnx"
    return folder


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    """An exported checkpoint that a test may spoil."""
    return Path(shutil.copytree(folder, tmp_path / "conductor"))


def padded_batch(words: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens, mask and positions of four texts of 3 to 40 tokens, padded on the left."""
    rng = np.random.default_rng(4)
    ids, mask = rng.integers(words, size=(4, 40)), np.ones((4, 40), np.int64)
    for row, length in enumerate((40, 3, 17, 39)):
        mask[row, : 40 - length] = 0
        ids[row, : 40 - length] = 0
    return ids, mask, np.maximum(mask.cumsum(1) - 1, 0)


@pytest.mark.parametrize("pieces", [[40], [37, 1, 1, 1], [1] * 40, [10, 20, 10]], ids=str)
def test_the_logits_are_torchs_with_and_without_a_cache(folder: Path, pieces: list[int]) -> None:
    model, _ = load_model(folder)
    ids, mask, places = padded_batch(model.config.vocab_size)
    with torch.no_grad():
        expected = model.eval()(
            input_ids=torch.from_numpy(ids),
            attention_mask=torch.from_numpy(mask),
            position_ids=torch.from_numpy(places),
            use_cache=False,
        ).logits.numpy()
    checkpoint = Checkpoint.read(folder)
    cache, start = checkpoint.empty_cache(len(ids)), 0
    for length in pieces:
        end = start + length
        logits, cache = checkpoint.step(ids[:, start:end], mask[:, :end], places[:, start:end], cache)
        said = mask[:, end - 1] > 0  # at padding there is nothing to say
        np.testing.assert_allclose(logits[said], expected[said, end - 1], atol=CLOSE, rtol=0)
        start = end
    assert start == 40
    assert np.abs(expected).max() > 1


def test_tokens_and_texts_are_those_of_training(folder: Path) -> None:
    _, tokenizer = load_model(folder)
    checkpoint = Checkpoint.read(folder)
    texts = [question.text for question in draw_questions("train", 50, seed=1)]
    texts += ['model_id = [0, 11]\nsubtasks = ["a", "b"]\naccess_list = [[], "all"]', "two  blanks\tand é, 漢 and 🙂"]
    for text in texts:
        ids = checkpoint.encode(text)
        assert ids == tokenizer(text)["input_ids"]
        assert checkpoint.decode([*ids, 1]) == tokenizer.decode([*ids, 1], skip_special_tokens=True)


def test_greedy_completions_are_those_of_training(folder: Path) -> None:
    model, tokenizer = load_model(folder)
    provider = OnnxProvider.from_folder(folder)
    chats = [render_prompt(question.text, range(8), options=COMPACT) for question in draw_questions("test", 12, seed=1)]
    texts = [
        tokenizer.apply_chat_template(
            [{"role": turn.role, "content": turn.content} for turn in chat], tokenize=False, add_generation_prompt=True
        )
        for chat in chats
    ]
    expected = complete(model, tokenizer, texts, max_tokens=24, temperature=None, seed=0)

    async def all_of_them() -> list[tuple[str, str, int]]:
        said = await asyncio.gather(*(provider.complete(chat, Sampling(), call=CallContext()) for chat in chats))
        return [(one.text, one.finish_reason, one.usage.output_tokens) for one in said]

    assert asyncio.run(all_of_them()) == [(one.text, one.finish_reason, one.usage.output_tokens) for one in expected]


def test_an_untrained_conductor_asks_and_says_what_is_wrong_with_its_plan(folder: Path) -> None:
    episode = Conductor(str(folder), pool=gym_pool()).ask_sync(draw_questions("test", 1, seed=0)[0].text)
    assert episode.answer is None
    assert "workflow" in type(episode.error).__name__.lower()
    assert episode.usage.output_tokens > 0
    assert (episode.usage.dollars, episode.usage.unpriced_calls) == (0, 0)


def test_the_file_is_one_piece_without_a_trace_of_the_machine(folder: Path) -> None:
    content = (folder / "model.onnx").read_bytes()
    assert len(content) < 1.2 * (folder / "model.safetensors").stat().st_size + 50_000, "weights are stored once"
    assert not list(folder.glob("*.data")) + list(folder.glob("*.part"))
    for trace in (b"site-packages", str(Path(export.__file__).parent).encode(), b"stack_trace", b".py"):
        assert trace not in content


def test_the_same_checkpoint_gives_the_same_bytes(folder: Path, copied: Path) -> None:
    assert export_onnx(copied).read_bytes() == (folder / "model.onnx").read_bytes()


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────
def test_an_export_that_computes_something_else_is_not_handed_out(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (copied / "model.onnx").read_bytes()
    model, _ = load_model(copied)
    with torch.no_grad():
        model.model.layers[0].self_attn.k_proj.bias += 1.0
    model.save_pretrained(copied)
    monkeypatch.setattr(export, "qwen2_graph", lambda model: onnx.load_from_string(before))
    with pytest.raises(ConfigError, match=r"logits differ by .*, expected at most 0\.001"):
        export_onnx(copied)


def test_a_disk_that_fails_leaves_the_file_as_it_was(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = copied / "model.onnx"

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage.os, "fsync", full)
    path.write_bytes(b"the one before")
    with pytest.raises(JournalError, match="No space left"):
        export_onnx(copied)
    assert path.read_bytes() == b"the one before"
    assert not list(copied.glob("*.part"))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_checkpoint_without_one_of_its_files_is_refused(copied: Path, name: str) -> None:
    (copied / name).unlink()
    with pytest.raises(ConfigError, match=f"found no {name}"):
        export_onnx(copied)


@pytest.mark.parametrize(("name", "content"), [("model.safetensors", "nothing"), ("tokenizer.json", "{}")])
def test_a_checkpoint_with_a_broken_file_is_refused(copied: Path, name: str, content: str) -> None:
    (copied / name).write_text(content)
    with pytest.raises(ConfigError, match=r"cannot be (loaded|read)"):
        export_onnx(copied)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "llama"}, "got architecture 'llama', expected 'qwen2'"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}}, "rope_type: got 'linear'"),
        ({"use_sliding_window": True, "sliding_window": 8}, "use_sliding_window: got True"),
        ({"hidden_act": "gelu"}, "hidden_act: got 'gelu'"),
    ],
)
def test_another_architecture_is_refused(copied: Path, changes: dict[str, object], message: str) -> None:
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(ConfigError, match=message):
        export_onnx(copied)


def test_a_chat_template_that_adds_something_is_refused(copied: Path) -> None:
    tokenizer = build_tokenizer()
    tokenizer.chat_template = "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}{% endfor %}"
    tokenizer.save_pretrained(copied)
    with pytest.raises(ConfigError, match=r"writes '<system>One\.<user>Two\.'"):
        export_onnx(copied)


# ── the bundled one ──────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_bundled_folder_is_given_whole_or_not_at_all(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled, "files", lambda package: copied.parent)
    with pytest.raises(ConfigError, match=r"found no conductor\.json, config\.json, model\.onnx, tokenizer\.json"):
        bundled.bundled_folder()
    copied.rename(copied.parent / "bundled")
    found = bundled.bundled_folder()
    assert OnnxProvider.from_folder(found).sampling.max_tokens == DESCRIBED["max_tokens"]
    (found / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"found no tokenizer\.json;"):
        bundled.bundled_folder()


async def test_a_message_that_is_not_in_the_vocabulary_is_read_all_the_same(folder: Path) -> None:
    said = await OnnxProvider.from_folder(folder).complete([Message("user", "漢字 🙂")], Sampling(), call=CallContext())
    assert said.usage.input_tokens == 4
