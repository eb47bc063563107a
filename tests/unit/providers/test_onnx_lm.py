"""The local checkpoint: tokens, batches, threads and a folder's faults, on a model small enough to compute by hand.

The model adds up all tokens that it has read (through its cache and its mask) and the position of the last one; that
sum chooses a row of a random table of logits. So a wrong cache, mask or position gives other tokens.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers  # noqa: E402

from openconductor.conductor import Conductor  # noqa: E402
from openconductor.errors import ConfigError, ContextTooLong, WorkerError, WorkerTimeout  # noqa: E402
from openconductor.pool import Worker, WorkerPool  # noqa: E402
from openconductor.prompt import PromptOptions  # noqa: E402
from openconductor.protocols import CallContext, Provider  # noqa: E402
from openconductor.providers import onnx_lm, resolve  # noqa: E402
from openconductor.providers.onnx_checkpoint import Checkpoint  # noqa: E402
from openconductor.providers.onnx_lm import MAX_BATCH, OnnxProvider  # noqa: E402
from openconductor.types import Completion, Message, Sampling  # noqa: E402

TOKENS = ("<pad>", "<end>", "<unk>", *"abcdefghij")
POSITIONS = 60
CALL = CallContext()
GREEDY = Sampling()


def table(*, ends: bool = True) -> np.ndarray:
    """The logits by sum of tokens; without ``ends`` no completion ever ends by itself."""
    logits = np.random.default_rng(5).normal(size=(len(TOKENS), len(TOKENS))).astype(np.float32)
    logits[:, [0, 2]] = -30.0
    if not ends:
        logits[:, 1] = -30.0
    return logits


def adding_model(logits: np.ndarray) -> onnx.ModelProto:
    constants = {
        "logits_by_sum": logits,
        "words": np.array(len(TOKENS), np.int64),
        "last": np.array(-1, np.int64),
        "axes": np.array([1, 3], np.int64),
        "row": np.array([1], np.int64),
        "flat": np.array([0, -1], np.int64),
    }
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["read"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["read", "axes"], ["new"]),
        helper.make_node("Concat", ["past_key_values.0.key", "new"], ["present.0.key"], axis=2),
        helper.make_node("Concat", ["past_key_values.0.value", "new"], ["present.0.value"], axis=2),
        helper.make_node("Reshape", ["present.0.value", "flat"], ["all"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["all", "mask"], ["seen"]),
        helper.make_node("ReduceSum", ["seen", "row"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Gather", ["position_ids", "last"], ["place"], axis=1),
        helper.make_node("Add", ["whole", "place"], ["key"]),
        helper.make_node("Mod", ["key", "words"], ["index"]),
        helper.make_node("Gather", ["logits_by_sum", "index"], ["logits"], axis=0),
    ]
    cached = [
        helper.make_tensor_value_info(f"past_key_values.0.{part}", TensorProto.FLOAT, ["batch", 1, "past", 1])
        for part in ("key", "value")
    ]
    ids = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", length])
        for name, length in (("input_ids", "new"), ("attention_mask", "all"), ("position_ids", "new"))
    ]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", len(TOKENS)])] + [
        helper.make_tensor_value_info(f"present.0.{part}", TensorProto.FLOAT, ["batch", 1, "all", 1])
        for part in ("key", "value")
    ]
    initial = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "adding", [*ids, *cached], outputs, initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def spelling_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({token: index for index, token in enumerate(TOKENS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in TOKENS[:3]])
    return tokenizer


CONFIG = {
    "model_type": "qwen2",
    "vocab_size": len(TOKENS),
    "num_hidden_layers": 1,
    "max_position_embeddings": POSITIONS,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
DESCRIBED = {
    "prompt": {"template": "compact", "examples": "none", "access": "index"},
    "max_tokens": 20,
    "max_steps": 4,
}


def write_checkpoint(folder: Path, *, logits: np.ndarray | None = None, positions: int = POSITIONS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(adding_model(table() if logits is None else logits).SerializeToString())
    spelling_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({**CONFIG, "max_position_embeddings": positions}))
    (folder / "conductor.json").write_text(json.dumps(DESCRIBED))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "conductor")


@pytest.fixture
def provider(folder: Path) -> OnnxProvider:
    return OnnxProvider.from_folder(folder)


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that never ends a completion, with positions for minutes of it."""
    return write_checkpoint(tmp_path_factory.mktemp("endless") / "c", logits=table(ends=False), positions=1_000_000)


def user(text: str) -> list[Message]:
    return [Message("user", text)]


def ask(
    provider: Provider, text: str, sampling: Sampling = GREEDY, call: CallContext = CALL
) -> asyncio.Task[Completion]:
    return asyncio.ensure_future(provider.complete(user(text), sampling, call=call))


def prompts(count: int) -> list[str]:
    """Different texts of 1 to 30 letters."""
    rng = np.random.default_rng(11)
    return ["".join(rng.choice(list("abcdefghij"), size=1 + index % 30)) for index in range(count)]


def by_hand(text: str, *, limit: int = 20) -> tuple[str, str]:
    """The greedy completion of the adding model, and why it ends."""
    logits, ids, said = table(), [TOKENS.index(letter) for letter in text], list[str]()
    while len(said) < limit:
        token = int(logits[(sum(ids) + len(ids) - 1) % len(TOKENS)].argmax())
        if token == 1:
            return "".join(said), "stop"
        ids.append(token)
        said.append(TOKENS[token])
    return "".join(said), "length"


async def asleep(provider: OnnxProvider) -> bool:
    """Whether the provider's thread ends within 20 seconds."""
    thread = provider._thread
    if thread is not None:
        await asyncio.to_thread(thread.join, 20)
    return provider._thread is None


# ── what is generated ────────────────────────────────────────────────────────────────────────────────────────────────
async def test_a_greedy_completion_is_the_likeliest_token_again_and_again(provider: OnnxProvider) -> None:
    endings = Counter[str]()
    for text in prompts(30):
        said = await ask(provider, text)
        assert (said.text, said.finish_reason) == by_hand(text)
        endings[said.finish_reason] += 1
    assert set(endings) == {"stop", "length"}, "both kinds of end are met"


async def test_greedy_text_is_the_same_alone_and_in_a_batch(provider: OnnxProvider) -> None:
    texts = prompts(150)
    together = await asyncio.gather(*(ask(provider, text) for text in texts))
    assert [(said.text, said.finish_reason) for said in together] == [by_hand(text) for text in texts]


async def test_sampled_text_is_the_same_alone_and_in_a_batch(provider: OnnxProvider) -> None:
    sampling = Sampling(temperature=1.0, seed=3)
    texts = prompts(40)
    together = await asyncio.gather(*(ask(provider, text, sampling) for text in texts))
    alone = [await ask(provider, text, sampling) for text in texts]
    assert [said.text for said in together] == [said.text for said in alone]


async def test_a_zero_temperature_is_greedy(provider: OnnxProvider) -> None:
    assert (await ask(provider, "abc", Sampling(temperature=0.0, seed=8))).text == by_hand("abc")[0]


async def test_the_same_call_draws_the_same_text_and_another_one_other_texts(provider: OnnxProvider) -> None:
    async def drawn(seed: int | None, call: CallContext) -> str:
        return (await ask(provider, "abcde", Sampling(temperature=2.0, seed=seed, max_tokens=30), call)).text

    first = await drawn(0, CALL)
    assert first == await drawn(0, CALL) == await drawn(None, CALL)
    others = [
        await drawn(1, CALL),
        await drawn(0, CallContext(sample=1)),
        await drawn(0, CallContext(round=1)),
        await drawn(0, CallContext(step=0)),
        await drawn(0, CallContext(attempt=1)),
    ]
    assert len({first, *others}) == 6


@pytest.mark.parametrize("temperature", [0.5, 1.0])
async def test_tokens_are_drawn_as_often_as_the_softmax_says(provider: OnnxProvider, temperature: float) -> None:
    count = 3000
    sampling = Sampling(temperature=temperature, max_tokens=1)
    said = await asyncio.gather(*(ask(provider, "cab", sampling, CallContext(sample=n)) for n in range(count)))
    seen = Counter("<end>" if one.finish_reason == "stop" else one.text for one in said)
    row = table()[(sum(TOKENS.index(letter) for letter in "cab") + 2) % len(TOKENS)].astype(float) / temperature
    mass = np.exp(row) / np.exp(row).sum()
    distance = sum(abs(seen[token] / count - mass[index]) for index, token in enumerate(TOKENS)) / 2
    assert distance < 0.03, "total variation; draws as many as these are off by about 0.015"


async def test_the_messages_contents_are_put_in_a_row(provider: OnnxProvider) -> None:
    said = await provider.complete([Message("system", "ab"), Message("user", "cd")], Sampling(), call=CALL)
    assert said.text == by_hand("abcd")[0]


async def test_a_text_that_spells_a_special_token_holds_none(provider: OnnxProvider) -> None:
    said = await ask(provider, "a<end>b")
    assert said.usage.input_tokens == len("a<end>b")


async def test_tokens_are_counted_the_end_among_them_and_nothing_is_priced(provider: OnnxProvider) -> None:
    text = next(text for text in prompts(30) if by_hand(text)[1] == "stop")
    said = await ask(provider, text)
    assert said.usage.input_tokens == len(text)
    assert said.usage.output_tokens == len(said.text) + 1
    assert said.usage.seconds > 0
    billed = await Worker(provider, name="local").complete(user(text), call=CALL)
    assert (billed.usage.dollars, billed.usage.unpriced_calls) == (Decimal(0), 0)


async def test_seconds_are_a_share_of_the_work_and_not_the_wait(provider: OnnxProvider) -> None:
    started = time.perf_counter()
    said = await asyncio.gather(*(ask(provider, text) for text in prompts(50)))
    assert 0 < sum(one.usage.seconds for one in said) <= time.perf_counter() - started


# ── where it ends ────────────────────────────────────────────────────────────────────────────────────────────────────
async def test_a_completion_ends_at_the_callers_limit_or_else_the_checkpoints(endless: Path) -> None:
    provider = OnnxProvider.from_folder(endless)
    said = await ask(provider, "abc", Sampling(max_tokens=7))
    assert (len(said.text), said.finish_reason, said.usage.output_tokens) == (7, "length", 7)
    assert len((await ask(provider, "abc")).text) == DESCRIBED["max_tokens"]


async def test_a_completion_ends_at_the_models_last_position(tmp_path: Path) -> None:
    provider = OnnxProvider.from_folder(write_checkpoint(tmp_path, logits=table(ends=False)))
    said = await ask(provider, "a" * (POSITIONS - 5), Sampling(max_tokens=50))
    assert (len(said.text), said.finish_reason) == (5, "length")


async def test_a_prompt_that_leaves_no_position_is_too_long_and_its_neighbours_are_answered(
    provider: OnnxProvider,
) -> None:
    fits, too_long, other = await asyncio.gather(
        ask(provider, "a" * (POSITIONS - 1)),
        ask(provider, "a" * POSITIONS),
        ask(provider, "abc"),
        return_exceptions=True,
    )
    assert isinstance(fits, Completion)
    assert isinstance(too_long, ContextTooLong)
    assert "60 tokens, expected at most 59" in str(too_long)
    assert isinstance(other, Completion)
    assert other.text == by_hand("abc")[0]


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        (Sampling(max_tokens=0), "max_tokens: got 0"),
        (Sampling(temperature=-1.0), "temperature: got -1"),
        (Sampling(temperature=float("nan")), "temperature: got nan"),
        (Sampling(body={"top_p": 0.5}), "top_p"),
    ],
)
async def test_a_sampling_that_cannot_be_done_is_refused(
    provider: OnnxProvider, sampling: Sampling, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        await ask(provider, "abc", sampling)


async def test_an_image_and_an_empty_prompt_are_errors(provider: OnnxProvider) -> None:
    with pytest.raises(WorkerError, match="text alone"):
        await provider.complete([Message("user", "abc", ({"type": "image_url"},))], Sampling(), call=CALL)
    with pytest.raises(WorkerError, match="empty"):
        await ask(provider, "")


# ── streaming ────────────────────────────────────────────────────────────────────────────────────────────────────────
async def test_pieces_come_in_the_callers_thread_and_add_up_to_the_text(provider: OnnxProvider) -> None:
    heard: list[tuple[str, int]] = []

    def listen(piece: str) -> None:
        heard.append((piece, threading.get_ident()))

    text = next(text for text in prompts(30) if len(by_hand(text)[0]) > 5)
    said = await provider.complete(user(text), Sampling(), call=CALL, on_text=listen)
    assert said.text == "".join(piece for piece, _ in heard) == by_hand(text)[0]
    assert len(heard) == len(said.text), "a piece a token"
    assert {thread for _, thread in heard} == {threading.get_ident()}


async def test_what_a_listener_raises_ends_the_call_alone(provider: OnnxProvider) -> None:
    def listen(piece: str) -> None:
        raise LookupError(piece)

    broken = provider.complete(user("abc"), Sampling(), call=CALL, on_text=listen)
    failed, said = await asyncio.gather(broken, ask(provider, "abcd"), return_exceptions=True)
    assert isinstance(failed, LookupError)
    assert isinstance(said, Completion)
    assert said.text == by_hand("abcd")[0]


# ── batches, threads, loops ──────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches that are generated from now on."""
    sizes: list[int] = []
    generate: Callable[[Checkpoint, Sequence[object]], None] = onnx_lm.generate

    def counted(checkpoint: Checkpoint, requests: Sequence[object]) -> None:
        sizes.append(len(requests))
        generate(checkpoint, requests)

    monkeypatch.setattr(onnx_lm, "generate", counted)
    return sizes


async def test_what_is_asked_in_one_turn_of_the_loop_is_generated_together(
    provider: OnnxProvider, batches: list[int]
) -> None:
    await asyncio.gather(*(ask(provider, text) for text in prompts(MAX_BATCH + 20)))
    assert batches == [MAX_BATCH, 20]
    assert await asleep(provider)


async def test_what_is_asked_while_a_batch_runs_is_the_next_batch(endless: Path, batches: list[int]) -> None:
    provider = OnnxProvider.from_folder(endless)
    begun = asyncio.Event()
    long = Sampling(max_tokens=300)
    first = asyncio.create_task(provider.complete(user("a"), long, call=CALL, on_text=lambda piece: begun.set()))
    await begun.wait()
    await asyncio.gather(*(ask(provider, text) for text in prompts(5)))
    await first
    assert batches == [1, 5]


async def test_the_loop_stays_free_while_tokens_are_made(endless: Path) -> None:
    provider = OnnxProvider.from_folder(endless)
    running = ask(provider, "a", Sampling(max_tokens=2000))
    turns = 0
    while not running.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 100


async def test_a_cancelled_call_leaves_its_batch_and_the_thread_ends(endless: Path) -> None:
    provider = OnnxProvider.from_folder(endless)
    gone = [ask(provider, text, Sampling(max_tokens=900_000)) for text in prompts(3)]
    stays = ask(provider, "abc", Sampling(max_tokens=200))
    await asyncio.sleep(0.05)
    for task in gone:
        task.cancel()
    assert len((await stays).text) == 200
    assert await asleep(provider)


async def test_a_call_ends_at_its_deadline(endless: Path) -> None:
    provider = OnnxProvider.from_folder(endless)
    now = asyncio.get_running_loop().time()
    with pytest.raises(WorkerTimeout, match="deadline"):
        await ask(provider, "abc", Sampling(max_tokens=900_000), CallContext(deadline=now + 0.1))
    assert await asleep(provider)
    with pytest.raises(WorkerTimeout, match="before the call began"):
        await ask(provider, "abc", call=CallContext(deadline=now))


def test_several_event_loops_may_ask_at_once(provider: OnnxProvider) -> None:
    texts = prompts(60)

    def in_a_loop_of_its_own(part: Sequence[str]) -> list[str]:
        async def all_of_them() -> list[str]:
            return [said.text for said in await asyncio.gather(*(ask(provider, text) for text in part))]

        return asyncio.run(all_of_them())

    with ThreadPoolExecutor(4) as threads:
        said = list(threads.map(in_a_loop_of_its_own, [texts[start::4] for start in range(4)]))
    assert said == [[by_hand(text)[0] for text in texts[start::4]] for start in range(4)]


def test_a_loop_that_ends_early_disturbs_nobody(endless: Path) -> None:
    provider = OnnxProvider.from_folder(endless)

    async def leave() -> None:
        ask(provider, "abc", Sampling(max_tokens=900_000))
        await asyncio.sleep(0.02)

    async def stay() -> str:
        return (await ask(provider, "abc", Sampling(max_tokens=3))).text

    asyncio.run(leave())
    assert len(asyncio.run(stay())) == 3


async def test_a_failing_runtime_is_every_callers_worker_error_and_the_next_call_works(
    provider: OnnxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("no room for the cache")

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "step", fail)
        failures = await asyncio.gather(*(ask(provider, text) for text in prompts(3)), return_exceptions=True)
    assert [type(failure) for failure in failures] == [WorkerError] * 3
    assert "no room for the cache" in str(failures[0])
    assert (await ask(provider, "abc")).text == by_hand("abc")[0]


# ── the folder ───────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_conductor_takes_prompt_and_sampling_from_its_checkpoint(folder: Path) -> None:
    conductor = Conductor(str(folder), pool=WorkerPool([Worker(lambda turns: "yes", name="one")]))
    assert conductor.prompt == PromptOptions(template="compact", examples="none", access="index")
    assert conductor.sampling == Sampling(max_tokens=20)
    planner = resolve(folder)
    assert isinstance(planner, OnnxProvider)
    assert planner.max_steps == 4


@pytest.mark.parametrize("name", ["config.json", "conductor.json", "tokenizer.json", "model.onnx"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ConfigError, match=rf"{name}: no such file; expected"):
        OnnxProvider.from_folder(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", "{", "config.json: .*expected a JSON object"),
        ("config.json", "[]", r"got \[\], expected a JSON object"),
        ("config.json", json.dumps({**CONFIG, "model_type": "llama"}), "got architecture 'llama', expected 'qwen2'"),
        ("config.json", json.dumps({**CONFIG, "eos_token_id": 99}), "eos_token_id: got 99, expected a token's id"),
        ("config.json", json.dumps({**CONFIG, "pad_token_id": None}), "pad_token_id: got None"),
        ("config.json", json.dumps({**CONFIG, "max_position_embeddings": "60"}), "max_position_embeddings: got '60'"),
        ("config.json", json.dumps({**CONFIG, "vocab_size": 5}), "tokenizer.json: got 13 tokens, expected at most"),
        (
            "config.json",
            json.dumps({**CONFIG, "vocab_size": 20}),
            r"model.onnx: got the outputs .*logits \[batch, 20\]",
        ),
        (
            "config.json",
            json.dumps({**CONFIG, "num_hidden_layers": 2}),
            "model.onnx: got the inputs .*expected .*1.key",
        ),
        ("conductor.json", "{", "conductor.json: .*expected a JSON object"),
        ("conductor.json", json.dumps({**DESCRIBED, "max_tokens": 0}), "max_tokens: got 0, expected at least 1"),
        ("conductor.json", json.dumps({**DESCRIBED, "max_token": 9}), "unknown key 'max_token'.*'max_tokens'"),
        ("conductor.json", json.dumps({"max_tokens": 9}), "prompt: missing"),
        ("conductor.json", json.dumps({**DESCRIBED, "chat": "chatml"}), "chat: got 'chatml', expected 'plain'"),
        ("conductor.json", json.dumps({**DESCRIBED, "prompt": {"template": "long"}}), "prompt.template: got 'long'"),
        ("tokenizer.json", "{}", "tokenizer.json: cannot be read"),
        ("tokenizer.json", "\udcff", "tokenizer.json: cannot be read"),
        ("model.onnx", "", "model.onnx: cannot be loaded"),
        ("model.onnx", "no model at all", "model.onnx: cannot be loaded"),
    ],
)
def test_a_malformed_file_is_named_with_what_was_expected(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / name).write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=message) as caught:
        OnnxProvider.from_folder(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_model_that_was_cut_short_is_a_config_error(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path) / "model.onnx"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ConfigError, match=r"model\.onnx"):
        OnnxProvider.from_folder(tmp_path)


def test_running_a_checkpoint_takes_no_torch_and_leaves_no_warning(folder: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from openconductor.providers import resolve\n"
        "from openconductor.protocols import CallContext\n"
        "from openconductor.types import Message, Sampling\n"
        "provider = resolve(sys.argv[1])\n"
        "said = asyncio.run(provider.complete([Message('user', 'abc')], Sampling(), call=CallContext()))\n"
        "print(said.text, *({'torch', 'transformers', 'onnx'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program, str(folder)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == by_hand("abc")[0]
    assert done.stderr == ""
