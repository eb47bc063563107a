"""One figure in every book: the answers, the journal, the metrics, the keys' bills, and what the
workers counted.

Many episodes over workers that fail in every way there is, with retries and fallback; of every API,
streamed and not, of two keys; some are broken off by their clients, some by their budgets.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from faults.plays import FAULTS
from faults.script import Seeded
from faults.server import FaultServer, counted, exact, fault_server
from integration.clock import SILENT
from integration.served import PATHS, PLAN, PRICES, Served, events, failure_of, served, usage_of
from openconductor.calls import policies
from openconductor.serving.key_ring import KeyRing, cost_of, new_key
from openconductor.serving.serve_config import KeyTable
from openconductor.store import Journal
from openconductor.types import Call, Usage

WEIGHTS = {name: 1.0 for name in FAULTS if name not in ("ok", "401", "403", "huge", "endless")}
WEIGHTS |= dict.fromkeys(SILENT, 0.2)  # each takes a whole timeout
SHARES = {"planner": 0.1, "a": 0.4, "b": 0.4, "c": 0.3}
KEYS = {"ann": new_key(), "ben": new_key()}
EPISODES = 54
NAMES = {  # of the tokens read, written and of both
    "chat": ("prompt_tokens", "completion_tokens", "total_tokens"),
    "responses": ("input_tokens", "output_tokens", "total_tokens"),
}
Answered = list[tuple[str, bool, httpx.Response]]


async def ask_all(server: Served, seed: int, *, leaving: bool) -> Answered:
    """Ask; return (API, streamed, answer) of those that came to an end."""
    draw = random.Random(seed)
    lanes = asyncio.Semaphore(6)
    answers = Answered()
    leaves_after = draw.uniform(0.005, 0.1) if leaving else None
    limited = {"conductor": {"max_calls": draw.randint(1, 3)}}

    async def ask(number: int) -> None:
        api = list(PATHS)[number % 3]
        stream = number % 2 == 1
        more = limited if number % 6 == 5 else {}
        key, _ = KEYS["ann" if number % 4 else "ben"]
        question = f"Question {number}?"
        async with lanes:
            with suppress(TimeoutError):
                async with asyncio.timeout(leaves_after if number % 6 == 4 else None):
                    answer = await server.ask(
                        api, key=key, stream=stream, question=question, **more
                    )
                    answers.append((api, stream, answer))

    asking = [ask(number) for number in range(EPISODES)]
    await asyncio.gather(*asking)
    return answers


def figures(page: str, name: str) -> dict[tuple[str, ...], float]:
    """The samples of one metric, by their labels in the order of the labels' names."""
    found = re.findall(rf"^openconductor_{name}_total{{(.*?)}} (.*)$", page, re.MULTILINE)
    return {tuple(re.findall(r'="(.*?)"', labels)): float(value) for labels, value in found}


@pytest.mark.parametrize(
    ("seed", "leaving"),
    [
        pytest.param(seed, leaving, marks=[pytest.mark.slow] * ((seed, leaving) != (1, False)))
        for seed in (1, 2, 3, 4)
        for leaving in (False, True)
    ],
)
async def test_every_book_says_what_the_workers_counted(
    tmp_path: Path, seed: int, leaving: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "FIRST_WAIT_S", 0.01)
    limits: Any = {"dollars": Decimal(5), "period": "total"}
    keys = [KeyTable(name, hashed, **limits) for name, (_, hashed) in KEYS.items()]
    options: Any = {"retries": 2, "timeout_s": 1.0, "conductor": {"fallback": True}}
    script = Seeded(seed, SHARES, WEIGHTS)
    async with (
        fault_server(script, {"planner": PLAN}) as faults,
        served(tmp_path, faults, key=keys, **options) as server,
    ):
        answers = await ask_all(server, seed, leaving=leaving)
        await faults.until(lambda one: not one.busy)
        await server.until_idle()
        metrics = await server.client.get(f"{server.url}/metrics")
        page = metrics.text
        assert len(faults.fates) > 15, "or nothing was tested"
        calls = list(server.journal.calls())
        check_journal(server.journal, calls, faults)
        check_metrics(page, server.journal, calls)
        check_answers(answers, calls)
        charged = check_bills(server.journal, calls)
        assert accounts(server.keys) == charged
        for name, dollars in charged.items():
            shown = figures(page, "key_dollars")[name,]
            assert shown == pytest.approx(float(dollars))
    with Journal(tmp_path / "serve.sqlite") as again:  # and so it goes on after a restart
        assert accounts(KeyRing(keys, again)) == charged


def check_journal(journal: Journal, calls: Sequence[Call], faults: FaultServer) -> None:
    """Hold the journal against what the workers counted.

    Of a call that was given up on the answer may have been on its way, and then only its worker
    knows. A client gives a call up; so does a busy machine, where a healthy worker is late.
    """
    outcomes = Counter(call.outcome for call in calls)
    silent = sum(faults.fates[name] for name in SILENT)
    given_up = outcomes["cancelled"] + max(0, outcomes["timeout"] - silent)
    kept = exact(journal.totals().spent.usage)
    told = counted(faults, PRICES)
    assert faults.unreported() <= kept[5] <= faults.unreported() + given_up
    if not given_up:
        assert kept == told
    for ours, theirs in zip(kept[:5], told, strict=False):
        assert ours <= theirs
    sent = Counter(record.request.model for record in faults.records)
    unsent = Counter(call.worker for call in calls) - sent
    assert unsent.total() <= given_up


def check_metrics(page: str, journal: Journal, calls: Sequence[Call]) -> None:
    """Hold the page of metrics against the journal."""
    tokens = figures(page, "tokens")
    dollars = figures(page, "dollars")
    unpriced = figures(page, "unpriced_calls")
    for worker, spent in journal.totals().by_worker.items():
        for kind in ("input", "cached", "output", "reasoning"):
            kept = getattr(spent.usage, f"{kind}_tokens")
            assert tokens.get((kind, worker), 0) == kept, worker
        assert dollars[worker,] == pytest.approx(float(spent.usage.dollars))
        assert unpriced[worker,] == spent.usage.unpriced_calls
    outcomes = Counter((call.outcome, call.worker) for call in calls)
    assert figures(page, "calls") == outcomes


def check_answers(answers: Answered, calls: Sequence[Call]) -> None:
    """Hold what each whole answer says that it used against its calls in the journal."""
    whole = 0
    for api, stream, answer in answers:
        if answer.status_code != 200:
            continue
        if stream and failure_of(api, events(answer.text)[-1]):
            continue
        whole += 1
        usage = usage_of(api, answer, stream=stream)
        bill = usage["orchestration"]
        assert answer.headers["x-request-id"] == bill["episode"]
        own = [call.usage for call in calls if call.episode == bill["episode"]]
        read, cached, wrote, _, cost, unknown = exact(sum(own, Usage()))
        assert Decimal(bill["dollars"]) == cost
        assert bill["unpriced_calls"] == unknown
        assert sum(Decimal(entry["dollars"]) for entry in bill["calls"]) == cost
        assert sum(entry["attempts"] for entry in bill["calls"]) == len(own)
        if api == "messages":
            assert usage["input_tokens"] == read - cached
            assert usage["cache_read_input_tokens"] == cached
            assert usage["output_tokens"] == wrote
        else:
            names = NAMES[api]
            assert [usage[name] for name in names] == [read, wrote, read + wrote]
    assert whole > EPISODES // 4


def check_bills(journal: Journal, calls: Sequence[Call]) -> dict[str, Decimal]:
    """Return each key's bill: what is known, and the most that the other calls may have cost."""
    charged = dict.fromkeys(KEYS, Decimal(0))
    for record in journal.records():
        if not record.key.startswith("serve/"):
            continue
        dollars = Decimal(str(record.value["charged"]))
        own = [call for call in calls if f"serve/{call.episode}" == record.key]
        assert dollars == sum(map(cost_of, own), Decimal(0))
        charged[str(record.value["key"])] += dollars
    spent = journal.totals().spent.usage
    assert sum(charged.values()) >= spent.dollars
    return charged


def accounts(keys: KeyRing) -> dict[str, Decimal]:
    tenants = (tenant for _, tenant in keys._tenants)
    return {name: tenant._purse.spent for name, tenant in zip(KEYS, tenants, strict=True)}
