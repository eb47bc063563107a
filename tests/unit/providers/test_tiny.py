"""The tiny Conductor: tokens, batches, threads, and the faults of a folder.

``alone`` reads one text at a time, without a cache, padding or a batch.
``integration/test_runtime.py`` compares the model with torch.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("safetensors")
from safetensors.numpy import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from openconductor.conductor import Conductor
from openconductor.errors import ConfigError, ContextTooLong, Rejected, WorkerError, WorkerTimeout
from openconductor.gym.bundled import bundled_folder
from openconductor.gym.questions import draw_questions
from openconductor.pool import Worker, WorkerPool
from openconductor.prompt import PromptOptions, render_prompt
from openconductor.protocols import CallContext
from openconductor.providers import resolve
from openconductor.providers.tiny import MAX_BATCH, Architecture, Checkpoint, TinyProvider
from openconductor.types import Completion, Message, Sampling

LETTERS = "abcdefghij"
TOKENS = ("<pad>", "<end>", "<unk>", *LETTERS)
POSITIONS, UNITS, LAYERS = 60, 4, 2
CALL, GREEDY = CallContext(), Sampling()
CONFIG: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_act": "silu",
    "use_sliding_window": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "vocab_size": len(TOKENS),
    "hidden_size": 2 * UNITS,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": POSITIONS,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
DESCRIBED = {
    "prompt": {"template": "compact", "examples": "none", "access": "index"},
    "max_tokens": 20,
    "max_steps": 4,
}


@cache
def weights(*, ends: bool = True) -> dict[str, np.ndarray]:
    """Return a random model.

    Letters are in pairs of opposite logits, so without ``ends`` some letter is always likelier.
    """
    rng, size = np.random.default_rng(6), 2 * UNITS
    shapes = {"model.embed_tokens.weight": (len(TOKENS), size), "model.norm.weight": (size,)}
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        for part, out in (("q", size), ("k", UNITS), ("v", UNITS)):
            shapes |= {
                f"{name}.self_attn.{part}_proj.weight": (out, size),
                f"{name}.self_attn.{part}_proj.bias": (out,),
            }
        shapes |= {
            f"{name}.self_attn.o_proj.weight": (size, size),
            f"{name}.mlp.down_proj.weight": (size, 12),
        }
        shapes |= {f"{name}.mlp.{part}_proj.weight": (12, size) for part in ("gate", "up")}
        shapes |= {
            f"{name}.{part}_layernorm.weight": (size,) for part in ("input", "post_attention")
        }
    made = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    half = rng.normal(size=(5, size))
    special = rng.normal(size=(3, size)) * [[0], [2.5 if ends else 0], [0]]
    return {**made, "lm_head.weight": np.concatenate((special, half, -half)).astype(np.float32)}


@cache
def reference() -> Checkpoint:
    rope = CONFIG["rope_parameters"]
    sizes = {name: value for name, value in CONFIG.items() if name != "rope_parameters"}
    return Checkpoint(cast(Any, None), Architecture(**sizes, **rope), cast(Any, None), weights())


def logits_alone(ids: Sequence[int]) -> np.ndarray:
    """Return the logits behind the last token, without a cache, padding or a batch."""
    model, row = reference(), np.array([ids])
    places = np.arange(len(ids))[None]
    logits, _ = model.step(row, np.ones_like(row), places, model.empty_cache(1))
    return logits[0]


@cache
def alone(text: str) -> tuple[str, str]:
    """Return the greedy completion of at most 20 tokens, and why it ends."""
    ids, said = [TOKENS.index(letter) for letter in text], ""
    while len(said) < DESCRIBED["max_tokens"]:
        token = int(logits_alone(ids).argmax())
        if token == 1:
            return said, "stop"
        ids.append(token)
        said += TOKENS[token]
    return said, "length"


def write_checkpoint(folder: Path, *, ends: bool = True, positions: int = POSITIONS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(
        models.WordLevel({token: index for index, token in enumerate(TOKENS)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in TOKENS[:3]])
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file(weights(ends=ends), folder / "model.safetensors")
    (folder / "config.json").write_text(
        json.dumps({**CONFIG, "max_position_embeddings": positions})
    )
    (folder / "conductor.json").write_text(json.dumps(DESCRIBED))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "conductor")


@pytest.fixture
def provider(folder: Path) -> TinyProvider:
    return TinyProvider(folder)


@pytest.fixture
def endless(tmp_path: Path) -> TinyProvider:
    """It never ends a completion, and has positions for minutes of it."""
    return TinyProvider(write_checkpoint(tmp_path / "endless", ends=False, positions=1_000_000))


def ask(
    provider: TinyProvider,
    text: str,
    sampling: Sampling = GREEDY,
    call: CallContext = CALL,
    **more: Any,
) -> asyncio.Task[Completion]:
    return asyncio.ensure_future(
        provider.complete([Message("user", text)], sampling, call=call, **more)
    )


def prompts(count: int) -> list[str]:
    """Different texts of 1 to 30 letters."""
    rng = np.random.default_rng(11)
    return ["".join(rng.choice(list(LETTERS), size=1 + index % 30)) for index in range(count)]


# ── what is generated ─────────────────────────────────────────────────────────────────────────────
async def test_greedy_text_is_the_likeliest_token_again_and_again_alone_and_in_a_batch(
    provider: TinyProvider,
) -> None:
    texts = prompts(100)
    together = await asyncio.gather(*(ask(provider, text) for text in texts))
    assert [(said.text, said.finish_reason) for said in together] == [alone(text) for text in texts]
    assert {said.finish_reason for said in together} == {"stop", "length"}, (
        "both kinds of end are met"
    )
    for text in texts[:5]:
        assert (await ask(provider, text, Sampling(temperature=0.0, seed=8))).text == alone(text)[0]


async def test_the_same_call_draws_the_same_text_alone_and_in_a_batch_and_another_one_another_text(
    provider,
) -> None:
    sampling = Sampling(temperature=1.0, seed=3)
    together = await asyncio.gather(*(ask(provider, text, sampling) for text in prompts(40)))
    assert [said.text for said in together] == [
        (await ask(provider, text, sampling)).text for text in prompts(40)
    ]
    calls = [
        CALL,
        CallContext(sample=1),
        CallContext(round=1),
        CallContext(step=0),
        CallContext(attempt=1),
    ]
    drawn = [
        await ask(provider, "abcde", Sampling(temperature=2.0, seed=0, max_tokens=30), call)
        for call in calls
    ]
    assert len({said.text for said in drawn}) == len(calls)


async def test_the_draws_of_a_seed_stay_what_they_were() -> None:
    provider = TinyProvider(bundled_folder())
    said: list[str] = []
    for temperature in (None, 1.0):
        for question in draw_questions("test", 24, seed=0):
            turns = render_prompt(question.text, range(8), options=provider.prompt_options)
            call = CallContext(sample=2)
            said.append(
                (await provider.complete(turns, Sampling(temperature, seed=3), call=call)).text
            )
    assert len(set(said[:24])) > 15
    assert said[:24] != said[24:]
    assert blake2b("\0".join(said).encode(), digest_size=8).hexdigest() == "5a8384bf8692d5b5"


@pytest.mark.parametrize("temperature", [0.5, 1.0])
async def test_tokens_are_drawn_as_often_as_the_softmax_says(
    provider: TinyProvider, temperature: float
) -> None:
    count = 3000
    sampling = Sampling(temperature=temperature, max_tokens=1)
    said = await asyncio.gather(
        *(ask(provider, "cab", sampling, CallContext(sample=n)) for n in range(count))
    )
    seen = Counter("<end>" if one.finish_reason == "stop" else one.text for one in said)
    row = logits_alone([TOKENS.index(letter) for letter in "cab"]) / temperature
    mass = np.exp(row - row.max())
    # Special tokens other than the end are read as no text.
    expected = {
        token: mass[index] / mass.sum() for index, token in enumerate(TOKENS) if index not in (0, 2)
    }
    distance = sum(abs(seen[token] / count - chance) for token, chance in expected.items()) / 2
    assert distance < 0.03, "total variation; draws as many as these are off by about 0.015"


async def test_tokens_are_counted_the_end_among_them_and_nothing_is_priced(
    provider: TinyProvider,
) -> None:
    text = next(text for text in prompts(100) if alone(text)[1] == "stop")
    started = time.perf_counter()
    said = await asyncio.gather(ask(provider, text), *(ask(provider, text) for text in prompts(50)))
    assert (said[0].usage.input_tokens, said[0].usage.output_tokens) == (
        len(text),
        len(said[0].text) + 1,
    )
    assert 0 < sum(one.usage.seconds for one in said) <= time.perf_counter() - started, (
        "work, and not the wait"
    )
    billed = await Worker(provider, name="local").complete([Message("user", text)], call=CALL)
    assert (billed.usage.dollars, billed.usage.unpriced_calls) == (Decimal(0), 0)


# ── where it ends ─────────────────────────────────────────────────────────────────────────────────
async def test_a_completion_ends_at_the_callers_limit_the_checkpoints_or_the_last_position(
    endless, tmp_path
) -> None:
    said = await ask(endless, "abc", Sampling(max_tokens=7))
    assert (len(said.text), said.finish_reason, said.usage.output_tokens) == (7, "length", 7)
    assert len((await ask(endless, "abc")).text) == DESCRIBED["max_tokens"]
    short = TinyProvider(write_checkpoint(tmp_path, ends=False))
    said = await ask(short, "a" * (POSITIONS - 5), Sampling(max_tokens=50))
    assert (len(said.text), said.finish_reason) == (5, "length")


@pytest.mark.parametrize(
    ("message", "sampling", "kind", "said"),
    [
        (Message("user", "abc"), Sampling(max_tokens=0), ConfigError, "max_tokens: got 0"),
        (Message("user", "abc"), Sampling(temperature=-1.0), ConfigError, "temperature: got -1"),
        (
            Message("user", "abc"),
            Sampling(temperature=float("nan")),
            ConfigError,
            "temperature: got nan",
        ),
        (Message("user", "abc"), Sampling(body={"top_p": 0.5}), ConfigError, "top_p"),
        (Message("user", "abc", ({"type": "image_url"},)), GREEDY, Rejected, "text alone"),
        (Message("user", ""), GREEDY, Rejected, "empty"),
        (
            Message("user", "a" * POSITIONS),
            GREEDY,
            ContextTooLong,
            "60 tokens, expected at most 59",
        ),
    ],
)
async def test_what_cannot_be_done_is_refused_and_its_neighbour_answered(
    provider: TinyProvider, message: Message, sampling: Sampling, kind: type[Exception], said: str
) -> None:
    both = (provider.complete([message], sampling, call=CALL), ask(provider, "abc"))
    refused, other = await asyncio.gather(*both, return_exceptions=True)
    assert type(refused) is kind
    assert said in str(refused)
    assert isinstance(other, Completion)
    assert other.text == alone("abc")[0]


# ── streaming ─────────────────────────────────────────────────────────────────────────────────────
async def test_pieces_come_in_the_callers_thread_and_add_up_to_the_text(
    provider: TinyProvider,
) -> None:
    heard: list[tuple[str, int]] = []
    text = next(text for text in prompts(30) if len(alone(text)[0]) > 5)
    said = await ask(
        provider, text, on_text=lambda piece: heard.append((piece, threading.get_ident()))
    )
    assert said.text == "".join(piece for piece, _ in heard) == alone(text)[0]
    assert len(heard) == len(said.text), "a piece a token"
    assert {thread for _, thread in heard} == {threading.get_ident()}


@pytest.mark.parametrize("kind", [LookupError, TimeoutError])
async def test_what_a_listener_raises_ends_the_call_alone(
    provider: TinyProvider, kind: type[Exception]
) -> None:
    def listen(piece: str) -> None:
        raise kind(piece)

    text = next(text for text in prompts(30) if alone(text)[0])
    failed, said = await asyncio.gather(
        ask(provider, text, on_text=listen), ask(provider, "abcd"), return_exceptions=True
    )
    assert type(failed) is kind
    assert isinstance(said, Completion)
    assert said.text == alone("abcd")[0]


# ── batches, threads, loops ───────────────────────────────────────────────────────────────────────
@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches that are generated from now on."""
    sizes: list[int] = []
    generate = TinyProvider._generate

    def counted(provider: TinyProvider, rows: list[Any]) -> None:
        sizes.append(len(rows))
        generate(provider, rows)

    monkeypatch.setattr(TinyProvider, "_generate", counted)
    return sizes


async def test_what_is_asked_in_one_turn_of_the_loop_is_generated_together(
    provider, batches
) -> None:
    await asyncio.gather(*(ask(provider, text) for text in prompts(MAX_BATCH + 20)))
    assert batches == [MAX_BATCH, 20]


async def test_what_is_asked_while_a_batch_runs_is_the_next_batch_and_the_loop_stays_free(
    endless, batches
) -> None:
    begun = asyncio.Event()
    first = ask(endless, "a", Sampling(max_tokens=300), on_text=lambda piece: begun.set())
    await begun.wait()
    others = [ask(endless, text) for text in prompts(5)]
    turns = 0
    while not first.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 100
    await asyncio.gather(*others)
    assert batches == [1, 5]


async def test_a_cancelled_call_leaves_its_batch(endless: TinyProvider) -> None:
    gone = [ask(endless, text, Sampling(max_tokens=900_000)) for text in prompts(3)]
    begun = asyncio.Event()
    stays = ask(endless, "abc", Sampling(max_tokens=200), on_text=lambda piece: begun.set())
    await begun.wait()
    for task in gone:
        task.cancel()
    assert len((await stays).text) == 200
    assert len((await ask(endless, "abc", Sampling(max_tokens=3))).text) == 3, (
        "the next batch has its turn"
    )


async def test_a_call_ends_at_its_deadline(endless: TinyProvider) -> None:
    now, worker = (
        asyncio.get_running_loop().time(),
        Worker(endless, name="local", sampling=Sampling(max_tokens=900_000)),
    )
    with pytest.raises(WorkerTimeout, match="deadline"):
        await worker.complete([Message("user", "abc")], call=CallContext(deadline=now + 0.1))
    assert len((await ask(endless, "abc", Sampling(max_tokens=3))).text) == 3, (
        "it does not hold up the next batch"
    )


def test_several_event_loops_may_ask_at_once_and_one_that_ends_early_disturbs_nobody(
    provider, endless
) -> None:
    parts = [prompts(60)[start::4] for start in range(4)]

    async def all_of(part: Sequence[str]) -> list[str]:
        return [said.text for said in await asyncio.gather(*(ask(provider, text) for text in part))]

    async def leave() -> None:
        begun = asyncio.Event()
        ask(endless, "abc", Sampling(max_tokens=900_000), on_text=lambda piece: begun.set())
        await begun.wait()

    with ThreadPoolExecutor(5) as threads:
        threads.submit(asyncio.run, leave())
        said = list(threads.map(lambda part: asyncio.run(all_of(part)), parts))
    assert said == [[alone(text)[0] for text in part] for part in parts]


async def test_a_failing_runtime_is_every_callers_worker_error_and_the_next_call_works(
    provider, monkeypatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("no room for the cache")

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "step", fail)
        failures = await asyncio.gather(
            *(ask(provider, text) for text in prompts(3)), return_exceptions=True
        )
    assert [type(failure) for failure in failures] == [WorkerError] * 3
    assert "no room for the cache" in str(failures[0])
    assert (await ask(provider, "abc")).text == alone("abc")[0]


# ── the folder ────────────────────────────────────────────────────────────────────────────────────
def test_a_conductor_takes_prompt_and_sampling_from_its_checkpoint(folder: Path) -> None:
    conductor = Conductor(str(folder), pool=WorkerPool([Worker(lambda turns: "yes", name="one")]))
    assert conductor.prompt == PromptOptions(template="compact", examples="none", access="index")
    assert conductor.planner.sampling == Sampling(max_tokens=20)
    for named in (folder, f"tiny:{folder}"):
        planner = resolve(named)
        assert isinstance(planner, TinyProvider)
        assert planner.max_steps == 4


def config(**changes: object) -> str:
    return json.dumps({**CONFIG, **changes})


def described(**changes: object) -> str:
    return json.dumps({**DESCRIBED, **changes})


BFLOAT = json.dumps({"model.norm.weight": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        *(
            (name, None, f"{name}: no such file; expected")
            for name in ("config.json", "tokenizer.json")
        ),
        ("config.json", "{", "config.json: .*expected a JSON object"),
        ("config.json", "[]", "config.json: .*expected a JSON object"),
        ("config.json", config(model_type="llama"), "model_type: got 'llama', expected 'qwen2'"),
        (
            "config.json",
            config(rope_parameters={"rope_type": "linear"}),
            "rope_type: got 'linear', expected 'default'",
        ),
        (
            "config.json",
            config(use_sliding_window=True),
            "use_sliding_window: got True, expected False",
        ),
        ("config.json", config(eos_token_id=99), "tokens up to 99, expected below vocab_size, 13"),
        ("config.json", config(max_position_embeddings="60"), "max_position_embeddings: got '60'"),
        ("config.json", config(vocab_size=5), "tokens up to 12, expected below vocab_size, 5"),
        (
            "config.json",
            config(vocab_size=20),
            r"model\.safetensors: .*more layers or other tokens",
        ),
        (
            "config.json",
            config(num_hidden_layers=1),
            r"model\.safetensors: .*more layers or other tokens",
        ),
        (
            "config.json",
            config(num_hidden_layers=3),
            r"model\.safetensors: .*layers\.2.*expected the weights",
        ),
        (
            "config.json",
            config(num_key_value_heads=2),
            r"model\.safetensors: .*expected the weights",
        ),
        ("conductor.json", None, "no conductor.json, which a training writes"),
        ("conductor.json", described(max_tokens=0), "max_tokens: got 0, expected greater than"),
        ("conductor.json", described(max_token=9), "unknown key 'max_token'.*'max_tokens'"),
        ("conductor.json", described(chat="chatml"), "chat: got 'chatml', expected 'plain'"),
        ("tokenizer.json", "\udcff", "tokenizer.json: cannot be read"),
        ("model.safetensors", "no model at all", "model.safetensors: cannot be read"),
        (
            "model.safetensors",
            chr(len(BFLOAT)) + "\0" * 7 + BFLOAT + "\0\0",
            "model.safetensors: cannot .*bfloat16",
        ),
        (
            "model.safetensors",
            None,
            r"model\.safetensors: no such file; expected a trained Conductor",
        ),
        (
            "chat_template.jinja",
            "{{ messages }}",
            "chat_template.jinja: got '{{ messages }}', expected the contents",
        ),
    ],
)
def test_a_missing_or_malformed_file_is_named_with_what_was_expected(
    folder, tmp_path, name, content, message
) -> None:
    copied = shutil.copytree(folder, tmp_path / "copied")
    if content is None:
        (copied / name).unlink()
    else:
        (copied / name).write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=message) as caught:
        TinyProvider(copied)
    assert str(copied) in str(caught.value)


def test_running_a_checkpoint_takes_no_torch_and_leaves_no_warning(folder: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from openconductor.providers import resolve\n"
        "from openconductor.protocols import CallContext\n"
        "from openconductor.types import Message, Sampling\n"
        "provider = resolve(sys.argv[1])\n"
        "turns = [Message('user', 'abc')]\n"
        "said = asyncio.run(provider.complete(turns, Sampling(), call=CallContext()))\n"
        "print(said.text, *({'torch', 'transformers', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program, str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == alone("abc")[0]
    assert done.stderr == ""
