"""Workers and their numbering: billing, deadlines, limits, subsets, the pool file."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from openconductor import errors
from openconductor.pool import Worker, WorkerPool
from openconductor.protocols import CallContext
from openconductor.providers.openai_compatible import OpenAICompatibleProvider
from openconductor.testing import Scripted
from openconductor.types import Message, Price, Sampling, Usage

CASES: Any = json.loads(Path(__file__).with_name("config_cases.json").read_text("ascii"))
HELLO = (Message("user", "hello"),)
CALL = CallContext()
TOKENS = Usage(input_tokens=1000, cached_tokens=400, output_tokens=500)


# ── a call ────────────────────────────────────────────────────────────────────────────────────────
PRICE = Price(Decimal("1.25"), Decimal(10), Decimal("0.125"))
BILLED = Usage(input_tokens=1, dollars=Decimal("0.5"), seconds=9.0)


@pytest.mark.parametrize(
    ("price", "usage", "dollars", "unpriced"),
    [
        (PRICE, TOKENS, "0.0058", 0),  # cached input has its own price
        ({"input": 1.25, "output": "10"}, TOKENS, "0.00625", 0),
        (None, TOKENS, "0", 1),  # unpriced is not free
        (PRICE, Usage(), "0", 1),  # nor are tokens that nobody counted
        (PRICE, BILLED, "0.5", 0),  # what a provider has billed itself stands
    ],
)
async def test_a_call_is_billed_exactly_or_counted_as_unpriced(
    price, usage, dollars, unpriced
) -> None:
    worker = Worker(Scripted(usage=usage), name="w", price=price)
    billed = (await worker.complete(HELLO, call=CALL)).usage
    assert (billed.dollars, billed.unpriced_calls) == (Decimal(dollars), unpriced)
    assert billed.seconds == 9.0 if usage is BILLED else 0 < billed.seconds < 5


async def test_a_worker_names_itself_in_an_error_that_names_nobody() -> None:
    for error, name in (
        (errors.RateLimited("slow"), "solver"),
        (errors.WorkerError("x", worker="deep"), "deep"),
    ):
        with pytest.raises(type(error)) as caught:
            await Worker(Scripted(error), name="solver").complete(HELLO, call=CALL)
        assert caught.value.worker == name


# ── deadlines ─────────────────────────────────────────────────────────────────────────────────────


async def test_the_nearer_of_the_two_deadlines_holds_and_is_told_to_the_provider() -> None:
    now = asyncio.get_running_loop().time()
    scripted = Scripted()
    worker = Worker(scripted, name="w", timeout_s=1000)
    for seconds in (5, 5000):
        await worker.complete(HELLO, call=CallContext(deadline=now + seconds))
    own, workers = (call.context.deadline for call in scripted.calls)
    assert own == now + 5 and workers == pytest.approx(now + 1000, abs=5)


async def test_a_deadline_that_has_passed_calls_nobody() -> None:
    scripted = Scripted()
    with pytest.raises(errors.WorkerTimeout):
        await Worker(scripted, name="w").complete(HELLO, call=CallContext(deadline=0.0))
    assert not scripted.calls


# ── wrappers ──────────────────────────────────────────────────────────────────────────────────────
def distant(identity: str) -> Scripted:
    return Scripted(remote=True, identity=identity)


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        (("w", "gpt at x", 2), ("w", "gpt at x", 2), (True, True)),
        (("w", "gpt at x", 2), ("w", "gpt at x", 3), (False, True)),
        (("w", "gpt at x", 2), ("v", "gpt at x", 2), (False, False)),
        (("w", "gpt at x", 2), ("w", "gpt at y", 2), (False, False)),
        (("w", "", 2), ("w", "", 2), (False, False)),
    ],
)
def test_what_differs_in_name_identity_or_settings_shares_less(first, second, shared) -> None:
    one, other = (
        Worker(distant(what), name=name, rpm=rpm, retries=0) for name, what, rpm in (first, second)
    )
    same_limits = one._chain._limits is other._chain._limits  # type: ignore[attr-defined]
    assert (same_limits, one._circuit is other._circuit) == shared


# ── numbering ─────────────────────────────────────────────────────────────────────────────────────
def workers(*names: str) -> list[Worker]:
    return [Worker(Scripted(), name=name) for name in names]


def test_a_subset_keeps_the_ordinals_also_of_a_subset() -> None:
    pool = WorkerPool(workers("a", "b", "c", "d")).subset([3, 1, 0]).subset([3, 1])
    assert pool.ordinals == (1, 3)
    assert pool[3].name == "d"
    assert pool.ordinal_of("d") == 3
    with pytest.raises(errors.ConfigError):
        pool[0]


@pytest.mark.parametrize("ordinals", [[9], [-1], [], [0, 0], [True], ["0"]], ids=str)
def test_a_wrong_subset_is_a_config_error(ordinals: list[int]) -> None:
    with pytest.raises(errors.ConfigError):
        WorkerPool(workers("a", "b")).subset(ordinals)


def test_an_unknown_ordinal_or_name_is_a_config_error() -> None:
    pool = WorkerPool(workers("solver", "judge"))
    for ordinal in (2, -1, True):
        with pytest.raises(errors.ConfigError, match=r"\[0, 1\]"):
            pool[ordinal]  # type: ignore[index]
    with pytest.raises(errors.ConfigError, match="'solver'"):
        pool["slover"]


async def test_a_worker_is_found_by_its_name_and_asked_alone() -> None:
    scripted = Scripted("4")
    pool = WorkerPool([Worker(scripted, name="big")])
    assert (await pool["big"].ask("2 + 2?")).text == "4"
    assert (await pool[0].ask(HELLO)).text == "4"
    assert pool["big"].ask_sync("2 + 2?").text == "4"  # beside a running event loop
    assert [call.text for call in scripted.calls] == ["2 + 2?", "hello", "2 + 2?"]


def test_a_pool_of_none_or_of_equals_is_a_config_error() -> None:
    worker = Worker(Scripted(), name="a")
    for wrong in ([], [worker, worker], workers("a", "a"), ["a"]):
        with pytest.raises(errors.ConfigError):
            WorkerPool(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [*CASES["worker options"], {"timeout_s": math.inf}],
    ids=str,
)
def test_a_worker_with_a_wrong_value_is_a_config_error(options: dict[str, object]) -> None:
    with pytest.raises(errors.ConfigError):
        Worker(Scripted(), **{"name": "w", **options})  # type: ignore[arg-type]


# ── the pool file ─────────────────────────────────────────────────────────────────────────────────
FULL = """
[[worker]]
name = "gpt"
model = "gpt-5"
api_key_env = "SOME_KEY"
description = "good at all"
tags = ["closed", "strong"]
max_concurrency = 64
rpm = 500
tpm = 100000
price = { input = 1.25, output = 10, cached = 0.125 }
sampling = { temperature = 0.2, max_tokens = 4096, seed = 3 }
body = { reasoning_effort = "minimal", thinking = { budget_tokens = 128 } }
timeout_s = 900
read_timeout_s = 60
retries = 4

[[worker]]
name = "qwen"
provider = "openai_compatible"
model = "qwen3:32b"
base_url = "http://localhost:8000/v1"
"""


SOLVER = '[[worker]]\nname = "solver"\n'


def from_text(folder: Path, text: str, *overrides: str) -> WorkerPool:
    file = folder / "pool.toml"
    file.write_text(text)
    return WorkerPool.from_toml(file, overrides)


def test_a_pool_file_gives_every_field_to_its_worker(tmp_path: Path) -> None:
    pool = from_text(tmp_path, FULL)
    gpt = pool[0]
    assert (gpt.name, gpt.description, gpt.tags) == ("gpt", "good at all", ("closed", "strong"))
    limits = gpt.max_concurrency, gpt.rpm, gpt.tpm, gpt.timeout_s, gpt.read_timeout_s, gpt.retries
    assert limits == (64, 500, 100000, 900.0, 60.0, 4)
    assert gpt.price == PRICE
    body = {"reasoning_effort": "minimal", "thinking": {"budget_tokens": 128}}
    assert replace(gpt.sampling, body=dict(gpt.sampling.body)) == Sampling(0.2, 4096, 3, body)
    assert isinstance(gpt.provider, OpenAICompatibleProvider) and gpt.provider.model == "gpt-5"


def test_a_worker_gives_its_timeouts_to_a_provider_that_it_makes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def made(model: str, *, timeout_s: float = 600, read_timeout_s: float | None = None):
        return distant(f"{model} {timeout_s} {read_timeout_s}")

    monkeypatch.setattr("openconductor.providers._load_factory", lambda name: made)
    assert Worker("openai:gpt-5", name="w", timeout_s=70, read_timeout_s=7).identity == "gpt-5 70 7"


def test_a_workers_options_are_arguments_of_its_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(model: str, *, seat: int, url: str = ""):
        return distant(f"{model} {seat} {url}")

    monkeypatch.setattr("openconductor.providers._load_factory", lambda name: made)
    table = '[[worker]]\nname = "w"\nmodel = "m"\nurl = "u"\n'
    assert from_text(tmp_path, table + "[worker.options]\nseat = 3")[0].identity == "m 3 u"
    for options, message in (
        ("seta = 3", "nearest: 'seat'"),
        ('seat = 3\nurl = "v"', "url is set twice"),
        ("", "missing a required (keyword-only )?argument: 'seat'"),
    ):
        with pytest.raises(errors.ConfigError, match=f"worker 'w': .*{message}"):
            from_text(tmp_path, f"{table}[worker.options]\n{options}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[worker]\nname = "a"\nmodel = "m"', r"an array of tables: write \[\[worker\]\]"),
        ("", r"worker: missing; expected at least one table \[\[worker\]\]"),
        (f'{SOLVER}modle = "m"', "toml: unknown key 'worker.0.modle'; the nearest .* 'model'$"),
        ('[[workers]]\nname = "a"', "toml: unknown key 'workers'; .* 'worker'$"),
        (f"{SOLVER}rpms = 3", "unknown key 'worker.0.rpms'.*'rpm'; worker.0.model: missing.*"),
    ],
)
def test_a_mistake_in_a_pool_file_is_told_once_with_its_fix(tmp_path, text, message) -> None:
    with pytest.raises(errors.ConfigError, match=message):
        from_text(tmp_path, text)


def test_a_pool_file_that_is_not_there_is_told_with_the_command_that_drafts_it(tmp_path) -> None:
    path = tmp_path / "none.toml"
    message = f"{path}: no such file; .* draft one: `openconductor pool init {path}`"
    with pytest.raises(errors.ConfigError, match=message):
        WorkerPool.from_toml(path)


def test_a_misspelt_worker_is_found_before_the_model_of_another_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "pool.toml"
    local = '[[worker]]\nname = "local"\nprovider = "transformers"\nmodel = "./nowhere"\n'
    other = '[[worker]]\nname = "other"\nprovider = "opnai"\nmodel = "m"\n'
    path.write_text(local + other, "utf-8")
    with pytest.raises(errors.ConfigError, match="worker 'other': provider: got 'opnai'"):
        WorkerPool.from_toml(path)


@pytest.mark.parametrize(
    ("text", "named"),
    CASES["pools"],
)
def test_a_wrong_pool_file_says_what_is_wrong_and_in_which_file(
    tmp_path: Path, text: str, named: str
) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        from_text(tmp_path, text)
    assert named in str(caught.value)
    assert "pool.toml" in str(caught.value)
