"""The example provider gets retries, prices and replay from its attributes and its errors."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from acme_provider import AcmeProvider

import openconductor as oc
from openconductor.testing import Scripted

ANSWER = {"text": "4", "read": 12, "written": 1, "cut": False, "cost": "0.002"}
BUSY = (503, {"error": "too many guests"})
PLAN = oc.Workflow([oc.Step(0, "Add.")])


class Acme:
    """Acme's server: gives its answers in turn, the last one ever after."""

    def __init__(self, *answers: tuple[int, dict[str, Any]]) -> None:
        self.answers = list(answers)
        self.urls: list[str] = []

    async def post(self, url: str, body: Mapping[str, object], key: str) -> tuple[int, Any]:
        assert key == "secret"
        self.urls.append(url)
        return self.answers[min(len(self.urls), len(self.answers)) - 1]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_API_KEY", "secret")
    monkeypatch.setattr("openconductor.calls.policies.FIRST_WAIT_S", 0.0)


def conductor(acme: Acme, model: str = "anvil") -> oc.Conductor:
    worker = oc.Worker(AcmeProvider(model, post=acme.post), name="acme")
    planner = oc.Worker(Scripted(PLAN), name="planner", price=oc.Price(Decimal(0), Decimal(0)))
    return oc.Conductor(planner, pool=oc.WorkerPool([worker]))


async def test_a_failure_of_the_server_is_retried_and_the_reported_price_is_the_bill() -> None:
    acme = Acme(BUSY, (200, ANSWER))
    episode = await conductor(acme).ask("2 + 2?", budget=oc.Budget(dollars=Decimal(1)))
    assert episode.answer == "4"
    assert len(acme.urls) == 2
    assert episode.usage.dollars == Decimal("0.002")
    assert episode.usage.unpriced_calls == 0


async def test_a_rejected_request_is_not_retried() -> None:
    acme = Acme((400, {"error": "no such model"}))
    episode = await conductor(acme).ask("2 + 2?")
    assert isinstance(episode.error, oc.Rejected)
    assert len(acme.urls) == 1


async def test_a_journal_replays_the_same_model_and_no_other(tmp_path: Path) -> None:
    acme = Acme((200, ANSWER))
    with oc.Journal(tmp_path / "journal.sqlite") as journal:
        for model in ("anvil", "anvil", "rocket"):
            await conductor(acme, model).replaying(journal).ask("2 + 2?", on_event=journal)
    assert len(acme.urls) == 2


def test_a_pool_file_names_the_provider_and_its_options(tmp_path: Path) -> None:
    text = """
        [[worker]]
        name = "acme"
        provider = "acme_provider:AcmeProvider"
        model = "anvil"
        [worker.options]
        region = "us"
    """
    (tmp_path / "pool.toml").write_text(text)
    pool = oc.WorkerPool.from_toml(tmp_path / "pool.toml")
    assert pool[0].identity == "acme anvil https://us.acme.example/v1"
    (tmp_path / "pool.toml").write_text(text.replace("region", "regoin"))
    with pytest.raises(oc.ConfigError, match=r"worker 'acme'.*'regoin'.*nearest: 'region'"):
        oc.WorkerPool.from_toml(tmp_path / "pool.toml")
