"""What an answer says that it used, the journal, the metrics, the keys' bills and what the workers
counted: one figure.

Many episodes over workers that fail in every way there is, with retries and fallback; of every API,
streamed and not, of two keys; some are broken off by their clients, some by their budgets.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from faults.plays import FAULTS
from faults.script import Seeded
from faults.server import bill, counted, exact, fault_server
from integration.served import PATHS, PLAN, PRICES, Served, events, failure_of, served, usage_of
from openconductor.calls import policies
from openconductor.serving.key_ring import KeyRing, cost_of, new_key
from openconductor.serving.serve_config import KeyTable
from openconductor.store import Journal
from openconductor.types import Usage

SILENT = ("hang", "hang_midway", "drip_head", "drip_text", "drip_nothing")
WEIGHTS = {name: 1.0 for name in FAULTS if name not in ("ok", "401", "403", "huge", "endless")}
WEIGHTS |= dict.fromkeys(SILENT, 0.2)  # each takes a whole timeout
SHARES = {"planner": 0.1, "a": 0.4, "b": 0.4, "c": 0.3}
KEYS = {"ann": new_key(), "ben": new_key()}
EPISODES = 54
Answered = list[tuple[str, bool, httpx.Response]]


async def ask_all(server: Served, seed: int, *, leaving: bool) -> Answered:
    """Ask; returns (API, streamed, answer) of those that came to an end."""
    draw, lanes, answers = random.Random(seed), asyncio.Semaphore(6), Answered()

    async def one(number: int, leaves: float | None, **more: Any) -> None:
        api, stream = list(PATHS)[number % 3], number % 2 == 1
        key = KEYS["ann" if number % 4 else "ben"][0]
        async with lanes:
            try:
                async with asyncio.timeout(leaves):
                    answer = await server.ask(
                        api, key=key, stream=stream, question=f"Question {number}?", **more
                    )
            except TimeoutError:
                return
            answers.append((api, stream, answer))

    plain: list[tuple[float | None, dict[str, Any]]] = [(None, {})] * 4
    kinds = [
        *plain,
        (draw.uniform(0.005, 0.1) if leaving else None, {}),
        (None, {"conductor": {"max_calls": draw.randint(1, 3)}}),
    ]
    await asyncio.gather(
        *(one(number, kinds[number % 6][0], **kinds[number % 6][1]) for number in range(EPISODES))
    )
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
    keys = [
        KeyTable(name, key[1], dollars=Decimal(5), period="total") for name, key in KEYS.items()
    ]
    options: dict[str, Any] = {"retries": 2, "timeout_s": 1.0, "conductor": {"fallback": True}}
    async with (
        fault_server(Seeded(seed, SHARES, WEIGHTS), {"planner": PLAN}) as faults,
        served(tmp_path, faults, key=keys, **options) as server,
    ):
        answers = await ask_all(server, seed, leaving=leaving)
        await faults.until(lambda one: not one.busy)
        while server.gateway._turns:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await server.journal.wait_durable()
        page = (await server.client.get(f"{server.url}/metrics")).text
        journal, told = server.journal, counted(faults, PRICES)
        assert len(faults.fates) > 15, "or nothing was tested"

        # the journal; of a call that was broken off the answer may have been on its way, and then
        # only its worker knows
        totals = journal.totals()
        calls = list(journal.calls())
        kept, cut = exact(totals.spent.usage), sum(call.outcome == "cancelled" for call in calls)
        assert (
            kept == told
            if not leaving
            else all(mine <= theirs for mine, theirs in zip(kept[:4], told, strict=False))
        )
        assert faults.unreported() <= kept[5] <= faults.unreported() + cut
        unsent = Counter(call.worker for call in calls) - Counter(
            one.request.model for one in faults.records
        )
        assert unsent.total() <= (cut if leaving else 0)

        # the metrics
        tokens, dollars, unpriced = (
            figures(page, name) for name in ("tokens", "dollars", "unpriced_calls")
        )
        for worker, spent in totals.by_worker.items():
            used = spent.usage
            for kind in ("input", "cached", "output", "reasoning"):
                assert tokens.get((kind, worker), 0) == getattr(used, f"{kind}_tokens"), (
                    worker,
                    kind,
                )
            assert dollars[worker,] == pytest.approx(float(used.dollars))
            assert unpriced[worker,] == used.unpriced_calls
            if not leaving:
                assert used.dollars == bill(PRICES[worker], faults.usage(worker))
        assert figures(page, "calls") == Counter((call.outcome, call.worker) for call in calls)

        # each answer, in the form of its API
        whole = 0
        for api, stream, answer in answers:
            last = events(answer.text)[-1] if stream and answer.status_code == 200 else None
            if answer.status_code != 200 or (
                last is not None and failure_of(api, last) is not None
            ):
                continue
            whole += 1
            usage = usage_of(api, answer, stream=stream)
            episode = usage["orchestration"]["episode"]
            assert answer.headers["x-request-id"] == episode
            mine = [call.usage for call in calls if call.episode == episode]
            read, cached, wrote, _, cost, unknown = exact(sum(mine, Usage()))
            told_of = usage["orchestration"]
            assert (Decimal(told_of["dollars"]), told_of["unpriced_calls"]) == (cost, unknown)
            assert sum(Decimal(one["dollars"]) for one in told_of["calls"]) == cost
            assert sum(one["attempts"] for one in told_of["calls"]) == len(mine)
            if api == "messages":
                assert usage["input_tokens"] + usage["cache_read_input_tokens"] == read
                assert usage["cache_read_input_tokens"] == cached
                assert usage["output_tokens"] == wrote
            else:
                names = (
                    ("prompt_tokens", "completion_tokens")
                    if api == "chat"
                    else ("input_tokens", "output_tokens")
                )
                assert (usage[names[0]], usage[names[1]], usage["total_tokens"]) == (
                    read,
                    wrote,
                    read + wrote,
                )
        assert whole > EPISODES // 4

        # the keys' bills: what is known, and the most that a call may have cost of which nothing is
        # known
        charged: dict[str, Decimal] = dict.fromkeys(KEYS, Decimal(0))
        for outcome in journal.records():
            record = dict(outcome.value)
            mine = [call for call in calls if f"serve/{call.episode}" == outcome.key]
            assert Decimal(str(record["charged"])) == sum(map(cost_of, mine), Decimal(0))
            charged[str(record["key"])] += Decimal(str(record["charged"]))
        assert sum(charged.values()) >= totals.spent.usage.dollars
        assert accounts(server.keys) == charged
        for name in KEYS:
            assert figures(page, "key_dollars")[name,] == pytest.approx(float(charged[name]))
    with Journal(tmp_path / "serve.sqlite") as again:  # and so it goes on after a restart
        assert accounts(KeyRing(keys, again)) == charged


def accounts(keys: KeyRing) -> dict[str, Decimal]:
    return {
        name: tenant._period.spent for name, (_, tenant) in zip(KEYS, keys._tenants, strict=True)
    }
