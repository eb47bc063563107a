"""Local models of ``transformers``, with a tiny random one that is made here."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'local': pip install 'openconductor[local]'")
pytest.importorskip(
    "transformers", reason="needs the extra 'local': pip install 'openconductor[local]'"
)

import torch
import transformers

import openconductor as oc
from openconductor.errors import ConfigError, Rejected, WorkerError
from openconductor.gym.sampling import phrases
from openconductor.protocols import CallContext
from openconductor.providers import create
from openconductor.providers.transformers_lm import TransformersProvider
from openconductor.store import open_store
from openconductor.training.models import build_model, build_tokenizer
from openconductor.training.train_config import ModelConfig
from openconductor.types import Completion, Message, Sampling, Step, Workflow

pytestmark = pytest.mark.train

POSITIONS = 2048
ASK = (Message("user", "What is 2 + 2?"),)
PROMPT = "uWhat is 2 + 2?;"
WARM = Sampling(temperature=1.0, max_tokens=12)
CHAT = (
    "{% for message in messages %}"
    "{% if message['role'] == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    "{{ message['role'][0] }}{{ message['content'] }};{% endfor %}"
    "{% if think is defined %}{{ think }}{% endif %}"
)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    tokenizer = build_tokenizer(phrases())
    tokenizer.chat_template = CHAT
    sizes = ModelConfig(
        hidden=32, intermediate=64, layers=2, heads=2, positions=POSITIONS, initializer_range=0.2
    )
    build_model(sizes, tokenizer, seed=3).save_pretrained(made)
    tokenizer.save_pretrained(made)
    return made


@pytest.fixture(scope="module")
def local(folder: Path) -> TransformersProvider:
    return TransformersProvider(folder, device="cpu")


async def ask(
    provider: Any, sampling: Sampling = WARM, *, messages: tuple[Message, ...] = ASK, **call: Any
) -> Completion:
    return await provider.complete(messages, sampling, call=CallContext(**call))


def greedy(provider: TransformersProvider, tokens: int) -> list[int]:
    """Return what the library itself writes."""
    prompt = torch.tensor([provider._tokenizer.encode(PROMPT)])
    limits = {"max_new_tokens": tokens, "do_sample": False}
    written = provider._lm.generate(prompt, **limits, eos_token_id=None, pad_token_id=0)
    return written[0, prompt.shape[1] :].tolist()


def copied(folder: Path, to: Path, **generation: object) -> Path:
    """The same model with other settings of generation."""
    for file in folder.iterdir():
        (to / file.name).symlink_to(file)
    settings = to / "generation_config.json"
    known = json.loads(settings.read_text())
    settings.unlink()
    settings.write_text(json.dumps({**known, **generation}))
    return to


# ── what is written ───────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("temperature", [None, 0.0])
async def test_without_a_temperature_it_writes_what_the_library_writes(local, temperature) -> None:
    got = await ask(local, Sampling(temperature=temperature, max_tokens=9))
    assert got.text == local._tokenizer.decode(greedy(local, 9), skip_special_tokens=True)
    assert got.finish_reason == "length"
    assert got.usage.input_tokens == len(local._tokenizer.encode(PROMPT))
    assert got.usage.output_tokens == 9
    assert got.usage.seconds > 0


async def test_a_sample_does_not_depend_on_what_is_asked_beside_it(
    local: TransformersProvider,
) -> None:
    alone = [(await ask(local, sample=index)).text for index in range(20)]
    longer = (Message("user", "a much longer question, so that there is padding"),)
    beside = [ask(local, messages=longer), ask(local, Sampling(max_tokens=12))]
    samples = [ask(local, sample=index) for index in range(20)]
    _, cold, *together = await asyncio.gather(*beside, *samples)
    assert [got.text for got in together] == alone
    assert len(set(alone)) == 20
    assert cold.text == local._tokenizer.decode(greedy(local, 12), skip_special_tokens=True)


async def test_each_call_of_a_batch_ends_at_its_own_limit(local: TransformersProvider) -> None:
    short, long = Sampling(temperature=0.3, max_tokens=5), Sampling(max_tokens=12)
    alone = [(await ask(local, short)).text, (await ask(local, long)).text]
    together = await asyncio.gather(ask(local, short), ask(local, long))
    assert [got.text for got in together] == alone
    assert [got.usage.output_tokens for got in together] == [5, 12]


async def test_rows_that_are_over_leave_the_batch(
    local: TransformersProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = [Sampling(max_tokens=count) for count in (2, 9, 3, 4, 9)]
    alone = [(await ask(local, sampling)).text for sampling in limits]
    rows: list[int] = []
    forward = local._lm.forward

    def count(*, input_ids: torch.Tensor, **options: Any) -> Any:
        rows.append(len(input_ids))
        return forward(input_ids=input_ids, **options)

    monkeypatch.setattr(local._lm, "forward", count)
    together = await asyncio.gather(*(ask(local, sampling) for sampling in limits))
    assert [got.text for got in together] == alone
    assert rows == [5] * 4 + [2] * 5


async def test_a_cache_that_cannot_be_parted_is_computed_anew(
    local: TransformersProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = [Sampling(max_tokens=count) for count in (2, 9, 3, 4, 9)]
    alone = [(await ask(local, sampling)).text for sampling in limits]
    monkeypatch.delattr(transformers.cache_utils.Cache, "batch_select_indices")
    together = await asyncio.gather(*(ask(local, sampling) for sampling in limits))
    assert [got.text for got in together] == alone


async def test_a_device_on_which_the_library_stops_a_step_late_gets_the_same_texts(
    local: TransformersProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is how it stops on Apple's GPUs: it takes a further step, and undoes it."""

    class Past:
        def record(self) -> None: ...
        def synchronize(self) -> None: ...

    limits = [Sampling(temperature=1.0, max_tokens=count) for count in (2, 9, 3, 4, 9)]
    alone = [(await ask(local, sampling)).text for sampling in limits]
    late = getattr(transformers.generation.utils, "DeferredStopCheck", None)
    if late is None:
        pytest.skip("this version of transformers never stops late")
    monkeypatch.setattr(late, "is_supported", staticmethod(lambda *_, **__: True))
    monkeypatch.setattr(torch, "Event", lambda **_: Past())
    together = await asyncio.gather(*(ask(local, sampling) for sampling in limits))
    assert [got.text for got in together] == alone
    assert [got.finish_reason for got in together] == ["length"] * 5


async def test_a_batch_is_as_large_as_was_asked_for(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = TransformersProvider(copied(folder, tmp_path), device="cpu", batch=3)
    sizes: list[int] = []
    generate = provider._generate

    def count(rows: list[Any]) -> None:
        sizes.append(len(rows))
        generate(rows)

    monkeypatch.setattr(provider, "_generate", count)
    await asyncio.gather(*(ask(provider, sample=index) for index in range(7)))
    assert sizes == [3, 3, 1]


async def test_a_batch_that_failed_leaves_its_memory(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = TransformersProvider(copied(folder, tmp_path), device="cpu")
    caches: list[Any] = []

    def fail(_rows: list[Any]) -> None:
        cache = torch.ones(3)
        caches.append(weakref.ref(cache))
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(provider, "_generate", fail)
    with pytest.raises(WorkerError, match="OutOfMemoryError: CUDA out of memory") as caught:
        await ask(provider)
    assert caches[0]() is None
    assert caught.value.__cause__.__traceback__ is not None, "its lines stay"


async def test_the_head_reads_contiguous_positions(local: TransformersProvider) -> None:
    head = local._lm.get_output_embeddings()
    layouts: list[bool] = []
    hook = head.register_forward_pre_hook(
        lambda _, inputs: layouts.append(inputs[0].is_contiguous())
    )
    await asyncio.gather(*(ask(local, sample=index) for index in range(3)))
    hook.remove()
    assert layouts and all(layouts)


async def test_samples_follow_the_models_probabilities(local: TransformersProvider) -> None:
    prompt = torch.tensor([local._tokenizer.encode(PROMPT)])
    with torch.inference_mode():
        expected = (local._lm(prompt).logits[0, -1] / 0.5).softmax(0)
    likeliest = int(expected.argmax())
    chance = float(expected[likeliest])
    sampling = Sampling(temperature=0.5, max_tokens=1)
    got = await asyncio.gather(*(ask(local, sampling, sample=index) for index in range(320)))
    word = local._tokenizer.decode([likeliest])
    share = sum(one.text == word for one in got) / 320
    assert abs(share - chance) < 5 * math.sqrt(chance * (1 - chance) / 320)


async def test_a_stream_is_the_same_text_in_pieces(local: TransformersProvider) -> None:
    pieces: list[str] = []
    got = await local.complete(ASK, WARM, call=CallContext(), on_text=pieces.append)
    assert "".join(pieces) == got.text == (await ask(local)).text
    assert len(pieces) > 3


async def test_it_stops_where_the_model_says_so(folder: Path, tmp_path: Path) -> None:
    model = TransformersProvider(folder, device="cpu")
    tokens = greedy(model, 9)
    end = next(index for index in range(1, 9) if tokens[index] not in tokens[:index])
    other = copied(folder, tmp_path, eos_token_id=[tokens[end]])
    got = await ask(TransformersProvider(other, device="cpu"), Sampling(max_tokens=50))
    assert got.finish_reason == "stop"
    assert got.text == model._tokenizer.decode(tokens[:end], skip_special_tokens=True)
    assert got.usage.output_tokens == end + 1


async def test_the_chat_template_writes_the_turns_and_takes_its_options(
    local: TransformersProvider,
) -> None:
    said = {"system": "x", "user": "y", "assistant": "z"}
    turns = tuple(Message(role, text) for role, text in said.items())
    body = {"chat_template_kwargs": {"think": "no"}}
    for sampling, text in (
        (Sampling(max_tokens=1), "sx;uy;az;"),
        (Sampling(max_tokens=1, body=body), "sx;uy;az;no"),
    ):
        got = await ask(local, sampling, messages=turns)
        assert got.usage.input_tokens == len(local._tokenizer.encode(text))


# ── ends and failures ─────────────────────────────────────────────────────────────────────────────
async def test_a_model_may_name_its_own_limit(folder: Path, tmp_path: Path) -> None:
    limited = TransformersProvider(copied(folder, tmp_path, max_new_tokens=7), device="cpu")
    got = await ask(limited, Sampling())
    assert (got.finish_reason, got.usage.output_tokens) == ("length", 7)


async def test_a_turn_that_the_template_refuses_is_rejected(local: TransformersProvider) -> None:
    beside = asyncio.create_task(ask(local))
    with pytest.raises(Rejected, match="template"):
        await ask(local, messages=(Message("tool", "x"),))
    assert (await beside).text


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(body={"top_p": 0.5}),
        Sampling(body={"chat_template_kwargs": 7}),
    ],
    ids=str,
)
async def test_sampling_that_is_none_is_a_config_error(
    local: TransformersProvider, sampling: Sampling
) -> None:
    with pytest.raises(ConfigError, match=r"sampling\."):
        await ask(local, sampling)


# ── adapters ──────────────────────────────────────────────────────────────────────────────────────
def save_adapter(base: Path, to: Path, *, seed: int, **settings: Any) -> Path:
    """Save random LoRA weights, large enough to change what is written."""
    peft = pytest.importorskip("peft", reason="needs the extra 'local'")
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    torch.manual_seed(seed)
    lora = peft.LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False, **settings)
    peft.get_peft_model(model, lora).save_pretrained(to)
    return to


@pytest.fixture(scope="module")
def adapters(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    made = tmp_path_factory.mktemp("adapters")
    return [save_adapter(folder, made / str(seed), seed=seed) for seed in range(2)]


def adapted(folder: Path, adapters: list[Path]) -> list[TransformersProvider]:
    """Workers of one base: one without an adapter, and one with each."""
    added = [TransformersProvider(folder, device="cpu", adapter=path) for path in adapters]
    return [TransformersProvider(folder, device="cpu"), *added]


COLD = Sampling(max_tokens=9)


async def test_a_batch_of_several_adapters_has_what_each_writes_alone(folder, adapters) -> None:
    workers = adapted(folder, adapters)
    questions = [(Message("user", "What is " + "2 + " * count + "2?"),) for count in range(4)]
    alone: list[str] = []
    for messages in questions:
        alone += [(await ask(worker, COLD, messages=messages)).text for worker in workers]
    rows = [ask(worker, COLD, messages=messages) for messages in questions for worker in workers]
    together = await asyncio.gather(*rows)
    assert [got.text for got in together] == alone
    assert len(set(alone[:3])) == 3
    plain = TransformersProvider(copied(folder, adapters[0].parent), device="cpu")
    assert (await ask(plain, COLD, messages=questions[0])).text == alone[0]


async def test_an_adapter_writes_what_the_library_writes_with_it(folder, adapters) -> None:
    peft = pytest.importorskip("peft", reason="needs the extra 'local'")
    worker = TransformersProvider(folder, device="cpu", adapter=adapters[1])
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    merged = peft.PeftModel.from_pretrained(model, adapters[1]).merge_and_unload()
    prompt = torch.tensor([worker._tokenizer.encode(PROMPT)])
    limits = {"max_new_tokens": 9, "do_sample": False}
    written = merged.generate(prompt, **limits, eos_token_id=None, pad_token_id=0)
    text = worker._tokenizer.decode(written[0, prompt.shape[1] :], skip_special_tokens=True)
    assert (await ask(worker, COLD)).text == text


async def test_workers_of_one_base_share_its_weights_and_a_batch(
    folder, adapters, monkeypatch
) -> None:
    workers = adapted(folder, adapters)
    assert len({id(worker._lm) for worker in workers}) == 1
    sizes: list[int] = []
    generate = TransformersProvider._generate

    def count(provider: TransformersProvider, rows: list[Any]) -> None:
        sizes.append(len(rows))
        generate(provider, rows)

    monkeypatch.setattr(TransformersProvider, "_generate", count)
    await asyncio.gather(*(ask(worker, COLD) for worker in workers))
    assert sizes == [3]


def test_a_base_that_was_written_anew_is_loaded_anew(folder: Path, tmp_path: Path) -> None:
    here = copied(folder, tmp_path)
    before = TransformersProvider(here, device="cpu")
    (tmp_path / "generation_config.json").write_text("{}")
    assert TransformersProvider(here, device="cpu")._lm is not before._lm


def test_an_adapter_is_named_by_its_bytes(folder: Path, adapters, tmp_path: Path) -> None:
    plain, first, second = (worker.identity for worker in adapted(folder, adapters))
    assert len({plain, first, second}) == 3
    moved = Path(shutil.copytree(adapters[0], tmp_path / "moved"))
    assert TransformersProvider(folder, device="cpu", adapter=moved).identity == first
    trained_on = save_adapter(folder, moved, seed=7)
    assert TransformersProvider(folder, device="cpu", adapter=trained_on).identity != first


async def test_a_journal_answers_for_an_adapter_until_it_is_trained_anew(
    folder: Path, adapters, tmp_path: Path
) -> None:
    here = Path(shutil.copytree(adapters[0], tmp_path / "adapter"))
    file = tmp_path / "pool.toml"
    file.write_text(
        f"""
        [[worker]]
        name = "sorter"
        provider = "transformers"
        model = "{folder}"
        device = "cpu"
        sampling = {{ max_tokens = 9 }}
        [worker.options]
        adapter = "{here}"
        """
    )
    workflow = Workflow([Step(0, "Sort them.")])
    seen: list[str] = []
    generate = TransformersProvider._generate

    def count(provider: TransformersProvider, rows: list[Any]) -> None:
        seen.extend(row.adapter for row in rows)
        generate(provider, rows)

    with (
        open_store(tmp_path / "journal.sqlite") as journal,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(TransformersProvider, "_generate", count)
        for retrained in (False, False, True):
            if retrained:
                save_adapter(folder, here, seed=8)
            pool = oc.WorkerPool.from_toml(file).replaying(journal)
            await oc.execute(workflow, pool, "4 3 2 1", on_event=journal)
            journal.flush()
    assert len(seen) == 2
    assert seen[0] != seen[1]


async def test_an_adapter_that_cannot_be_used_is_a_config_error(
    folder: Path, adapters, tmp_path: Path
) -> None:
    (tmp_path / "base").mkdir()
    base = copied(folder, tmp_path / "base")
    plain = TransformersProvider(base, device="cpu")
    before = (await ask(plain, COLD)).text
    dora = save_adapter(folder, tmp_path / "dora", seed=1, use_dora=True)
    misfit = Path(shutil.copytree(adapters[0], tmp_path / "misfit"))
    settings = json.loads((misfit / "adapter_config.json").read_text())
    (misfit / "adapter_config.json").write_text(json.dumps(settings | {"r": 9}))
    for path, said in (
        (tmp_path / "nowhere", "expected a folder with adapter_config.json"),
        (dora, "got DoRA, expected a plain LoRA"),
        (misfit, "could not be loaded"),
    ):
        with pytest.raises(ConfigError, match=said):
            create("transformers", str(base), device="cpu", adapter=str(path))
    assert (await ask(plain, COLD)).text == before
    added = TransformersProvider(base, device="cpu", adapter=adapters[0])
    expected = await ask(adapted(folder, adapters)[1], COLD)
    assert (await ask(added, COLD)).text == expected.text != before


# ── loading ───────────────────────────────────────────────────────────────────────────────────────
def test_the_dtype_and_the_device_are_as_asked_for(folder: Path) -> None:
    made: Any = create("transformers", str(folder), device="cpu", dtype="bfloat16")
    assert made._lm.dtype is torch.bfloat16
    assert made.identity == f"transformers {folder} torch.bfloat16"
    assert made.prices_itself


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dtype": "int3"}, "expected one of auto"),
        ({"device": "abacus"}, "on abacus: could not be loaded"),
        ({"device": "cuda:99"}, "on cuda:99: could not be loaded"),
        ({"batch": 0}, "batch: got 0, expected at least 1"),
    ],
)
def test_a_setting_that_is_none_is_a_config_error(
    folder: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        create("transformers", str(folder), **options)


def test_a_model_that_is_not_there_is_a_config_error(tmp_path: Path) -> None:
    for name in (str(tmp_path), "nobody/has-this-model"):
        with pytest.raises(ConfigError, match="could not be loaded"):
            create("transformers", name)


def test_a_model_that_cannot_chat_is_a_config_error(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        if file.name != "chat_template.jinja":
            (tmp_path / file.name).symlink_to(file)
    with pytest.raises(ConfigError, match="no chat template"):
        create("transformers", str(tmp_path))
