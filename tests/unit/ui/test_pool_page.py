"""The page about the pool: health, latency, errors, spending, cards and headroom."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from episodes_of import PRICE, ask, fill, pool
from sites import Markup, asked, visited

import openconductor as oc
from openconductor.calls.cards import Calibration, Count
from openconductor.serving.key_ring import hash_key
from openconductor.serving.serve_config import KeyTable
from openconductor.store import Journal
from openconductor.testing import Scripted


@pytest.fixture
def store(tmp_path: Path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        yield journal


def usages() -> list[dict[str, Any]]:
    """What two keys of a server have spent, as it tells them."""
    ann = {"key": "ann", "spent": "1.5", "limit": "2", "period": "day", "ends": 10**9}
    return [ann, {"key": "kim", "spent": None, "limit": None}]


def measured_pool() -> oc.WorkerPool:
    """A pool whose first worker was measured, and is called ``anna``."""
    law: Mapping[str, Count] = {"law": Count(9, 10)}
    card = Calibration(9, 10, date=date(2026, 11, 1), seconds=1.5, categories=law)
    provider = Scripted(["yes"], identity="anna")
    return oc.WorkerPool(
        [oc.Worker(provider, name="anna", price=PRICE, calibrations={"exams": card})]
    )


async def test_workers_have_their_calls_failures_latency_and_cost(store, tmp_path) -> None:
    await fill(store)
    async with visited(store, root=tmp_path) as visit:
        page = Markup((await visit.client.get("/ui/pool")).text)
        data = (await visit.client.get("/ui/pool.json")).json()
    bert = data["lines"]["bert"]
    assert bert["outcomes"]["server_failed"] == 4  # one healed, and one failed thrice
    assert "server_failed 4" in page.text
    assert f"{4 / sum(bert['outcomes'].values()):.1%}" in page.text
    for words in ("anna", "carl", "not measured", "openconductor pool calibrate", "Headroom"):
        assert words in page.text
    looks = [value for _, name, value in page.attributes if name == "class" and "worker w" in value]
    assert looks[:3] == ["worker w0", "worker w1", "worker w2"]  # the colours of the episodes


async def test_a_server_shows_health_cards_and_the_spending_of_its_keys(store, tmp_path) -> None:
    await ask(store, "What?", workers=pool())
    store.flush()
    options = {"root": tmp_path, "pool": measured_pool(), "usages": usages}
    async with visited(store, **options) as visit:
        page = Markup((await visit.client.get("/ui/pool")).text)
        data = (await visit.client.get("/ui/pool.json")).json()
    for words in ("healthy", "law 90%", "1.5 s an answer", "ann", "$1.5000", "$2", "75%", "kim"):
        assert words in page.text
    assert "not in the pool" in page.text  # bert and carl were called, and are gone
    assert data["healthy"] == {"anna": True}
    assert [key["key"] for key in data["spending"]] == ["ann", "kim"]


async def test_a_key_sees_its_own_spending_and_no_calls_of_others(store, tmp_path) -> None:
    await ask(store, "What?", workers=pool())
    store.flush()
    options = {"root": tmp_path, "pool": measured_pool(), "usages": usages}
    async with visited(store, keys={"oc-ann": "ann"}, **options) as visit:
        await visit.enter(key="oc-ann")
        page = await visit.client.get("/ui/pool")
        data = (await visit.client.get("/ui/pool.json")).json()
    assert "healthy" in page.text
    assert "bert" not in page.text
    assert "kim" not in page.text
    assert data["lines"] == {}
    assert [key["key"] for key in data["spending"]] == ["ann"]


async def test_a_key_sees_the_workers_that_it_may_use_and_no_other(store) -> None:
    tables = [KeyTable("ann", hash_key("oc-ann"), workers=("anna",))]
    async with asked(store, pool(), {}, keys=tables) as visit:
        await visit.enter(key="oc-ann")
        page = await visit.client.get("/ui/pool")
        data = (await visit.client.get("/ui/pool.json")).json()
    assert data["healthy"] == {"anna": True}
    assert list(data["cards"]) == ["anna"]
    assert "anna" in page.text
    assert "bert" not in page.text


async def test_an_evaluation_that_cannot_be_read_hides_no_worker(store, tmp_path) -> None:
    (tmp_path / "begun").mkdir()
    recipe = 'systems = ["workers"]\n[[task]]\nname = "gym"\n'
    (tmp_path / "begun" / "config.toml").write_text(recipe)
    async with visited(store, root=tmp_path, pool=measured_pool()) as visit:
        page = await visit.client.get("/ui/pool")
    assert page.status_code == 200
    assert "healthy" in page.text
    assert "begun: its numbers cannot be read" in page.text


async def test_an_empty_pool_says_what_to_do(store, tmp_path) -> None:
    async with visited(store, root=tmp_path) as visit:
        assert "openconductor pool check" in (await visit.client.get("/ui/pool")).text
