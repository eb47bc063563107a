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
from openconductor.providers.conductor_file import weights_digest
from openconductor.providers.tiny import MAX_BATCH, Architecture, Checkpoint, TinyProvider
from openconductor.types import Completion, Message, Sampling

LETTERS = "abcdefghij"
TOKENS = ("<pad>", "<end>", "<unk>", *LETTERS)
POSITIONS, UNITS, LAYERS = 60, 4, 2
CALL, GREEDY = CallContext(), Sampling()
CASES: Any = json.loads(Path(__file__).with_name("tiny.json").read_text("utf-8"))
CONFIG: dict[str, Any] = CASES["config.json"]
DESCRIBED: dict[str, Any] = CASES["conductor.json"]
SIZE, INNER = CONFIG["hidden_size"], 12
SHAPES = {  # of the weights of a layer
    "self_attn.q_proj.weight": (SIZE, SIZE),
    "self_attn.q_proj.bias": (SIZE,),
    "self_attn.k_proj.weight": (UNITS, SIZE),
    "self_attn.k_proj.bias": (UNITS,),
    "self_attn.v_proj.weight": (UNITS, SIZE),
    "self_attn.v_proj.bias": (UNITS,),
    "self_attn.o_proj.weight": (SIZE, SIZE),
    "mlp.down_proj.weight": (SIZE, INNER),
    "mlp.gate_proj.weight": (INNER, SIZE),
    "mlp.up_proj.weight": (INNER, SIZE),
    "input_layernorm.weight": (SIZE,),
    "post_attention_layernorm.weight": (SIZE,),
}


@cache
def weights(*, ends: bool = True) -> dict[str, np.ndarray]:
    """Return a random model.

    Letters are in pairs of opposite logits, so without ``ends`` some letter is always likelier.
    """
    rng = np.random.default_rng(6)
    shapes = {"model.embed_tokens.weight": (len(TOKENS), SIZE), "model.norm.weight": (SIZE,)}
    for layer in range(LAYERS):
        for name, shape in SHAPES.items():
            shapes[f"model.layers.{layer}.{name}"] = shape
    made = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    half = rng.normal(size=(5, SIZE))
    special = rng.normal(size=(3, SIZE)) * [[0], [2.5 if ends else 0], [0]]
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
    ids = {token: index for index, token in enumerate(TOKENS)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in TOKENS[:3]])
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file(weights(ends=ends), folder / "model.safetensors")
    config = CONFIG | {"max_position_embeddings": positions}
    (folder / "config.json").write_text(json.dumps(config))
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
    turns = [Message("user", text)]
    return asyncio.ensure_future(provider.complete(turns, sampling, call=call, **more))


async def ask_all(provider: TinyProvider, texts: Sequence[str], *given: Any) -> list[str]:
    """Return what is said to texts that are asked at once."""
    completions = await asyncio.gather(*(ask(provider, text, *given) for text in texts))
    return [completion.text for completion in completions]


def prompts(count: int) -> list[str]:
    """Different texts of 1 to 30 letters."""
    rng = np.random.default_rng(11)
    return ["".join(rng.choice(list(LETTERS), size=1 + index % 30)) for index in range(count)]


# ── what is generated ─────────────────────────────────────────────────────────────────────────────
async def test_greedy_text_is_the_likeliest_token_again_and_again_alone_and_in_a_batch(
    provider: TinyProvider,
) -> None:
    texts = prompts(100)
    completions = await asyncio.gather(*(ask(provider, text) for text in texts))
    ends = [(completion.text, completion.finish_reason) for completion in completions]
    assert ends == [alone(text) for text in texts]
    assert {reason for _, reason in ends} == {"stop", "length"}
    for text in texts[:5]:
        greedy = await ask(provider, text, Sampling(temperature=0.0, seed=8))
        assert greedy.text == alone(text)[0]


async def test_the_same_call_draws_the_same_text_alone_and_in_a_batch(
    provider: TinyProvider,
) -> None:
    sampling = Sampling(temperature=1.0, seed=3)
    together = await ask_all(provider, prompts(40), sampling)
    one_by_one = [(await ask(provider, text, sampling)).text for text in prompts(40)]
    assert together == one_by_one


async def test_another_call_draws_another_text(provider: TinyProvider) -> None:
    places = ({}, {"sample": 1}, {"round": 1}, {"step": 0}, {"attempt": 1})
    sampling = Sampling(temperature=2.0, seed=0, max_tokens=30)
    drawn: set[str] = set()
    for place in places:
        drawn.add((await ask(provider, "abcde", sampling, CallContext(**place))).text)
    assert len(drawn) == len(places)


async def test_the_draws_of_a_seed_stay_what_they_were() -> None:
    provider = TinyProvider(bundled_folder())
    call = CallContext(sample=2)
    texts: list[str] = []
    for temperature in (None, 1.0):
        sampling = Sampling(temperature, seed=3)
        for question in draw_questions("test", 24, seed=0):
            turns = render_prompt(question.text, range(8), options=provider.prompt_options)
            texts.append((await provider.complete(turns, sampling, call=call)).text)
    assert len(set(texts[:24])) > 15
    assert texts[:24] != texts[24:]
    assert blake2b("\0".join(texts).encode(), digest_size=8).hexdigest() == "5a8384bf8692d5b5"


@pytest.mark.parametrize("temperature", [0.5, 1.0])
async def test_tokens_are_drawn_as_often_as_the_softmax_says(
    provider: TinyProvider, temperature: float
) -> None:
    count = 3000
    sampling = Sampling(temperature=temperature, max_tokens=1)
    calls = [ask(provider, "cab", sampling, CallContext(sample=n)) for n in range(count)]
    completions = await asyncio.gather(*calls)
    seen = Counter(
        "<end>" if drawn.finish_reason == "stop" else drawn.text for drawn in completions
    )
    logits = logits_alone([TOKENS.index(letter) for letter in "cab"]) / temperature
    mass = np.exp(logits - logits.max())
    chances = dict(zip(TOKENS, mass / mass.sum(), strict=True))
    for special in ("<pad>", "<unk>"):  # are read as no text
        del chances[special]
    distance = sum(abs(seen[token] / count - chance) for token, chance in chances.items()) / 2
    assert distance < 0.03, "total variation; draws as many as these are off by about 0.015"


async def test_tokens_are_counted_the_end_among_them_and_nothing_is_priced(
    provider: TinyProvider,
) -> None:
    text = next(text for text in prompts(100) if alone(text)[1] == "stop")
    started = time.perf_counter()
    others = [ask(provider, other) for other in prompts(50)]
    first, *rest = await asyncio.gather(ask(provider, text), *others)
    elapsed = time.perf_counter() - started
    assert (first.usage.input_tokens, first.usage.output_tokens) == (len(text), len(first.text) + 1)
    worked = sum(completion.usage.seconds for completion in (first, *rest))
    assert 0 < worked <= elapsed, "work, and not the wait"
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
    now = asyncio.get_running_loop().time()
    worker = Worker(endless, name="local", sampling=Sampling(max_tokens=900_000))
    with pytest.raises(WorkerTimeout, match="deadline"):
        await worker.complete([Message("user", "abc")], call=CallContext(deadline=now + 0.1))
    assert len((await ask(endless, "abc", Sampling(max_tokens=3))).text) == 3, (
        "it does not hold up the next batch"
    )


def test_several_event_loops_may_ask_at_once_and_one_that_ends_early_disturbs_nobody(
    provider: TinyProvider, endless: TinyProvider
) -> None:
    async def leave() -> None:
        begun = asyncio.Event()
        ask(endless, "abc", Sampling(max_tokens=900_000), on_text=lambda piece: begun.set())
        await begun.wait()

    parts = [prompts(60)[start::4] for start in range(4)]
    with ThreadPoolExecutor(5) as threads:
        threads.submit(asyncio.run, leave())
        texts = list(threads.map(lambda part: asyncio.run(ask_all(provider, part)), parts))
    assert texts == [[alone(text)[0] for text in part] for part in parts]


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


@pytest.mark.parametrize(("name", "content", "message"), CASES["faults"])
def test_a_missing_or_malformed_file_is_named_with_what_was_expected(
    folder: Path, tmp_path: Path, name: str, content: Any, message: str
) -> None:
    copied = shutil.copytree(folder, tmp_path / "copied")
    if content is None:
        (copied / name).unlink()
    elif isinstance(content, dict):
        (copied / name).write_text(json.dumps(CASES[name] | content))
    else:
        (copied / name).write_text(content)
    with pytest.raises(ConfigError, match=message) as caught:
        TinyProvider(copied)
    assert str(copied) in str(caught.value)


def test_a_tokenizer_that_is_no_text_cannot_be_read(folder: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(folder, tmp_path / "copied")
    (copied / "tokenizer.json").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"tokenizer\.json: cannot be read"):
        TinyProvider(copied)


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


def test_weights_are_known_by_their_bytes_wherever_they_lie(tmp_path: Path) -> None:
    folder = bundled_folder()
    copy = shutil.copytree(folder, tmp_path / "copy")
    digest = weights_digest(folder)
    assert len(digest) == 32 and weights_digest(copy) == digest
    weights = copy / "model.safetensors"
    *first, last = weights.read_bytes()
    weights.write_bytes(bytes([*first, last ^ 1]))
    assert weights_digest(copy) not in ("", digest)
    assert weights_digest(tmp_path) == "", "there are none"
    weights.rename(copy / "pytorch_model.bin")
    assert weights_digest(copy) not in ("", digest), "as older models have them"
