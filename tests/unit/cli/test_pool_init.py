"""A first pool file, from the names of keys: it loads, it holds no key, and it explains itself."""

from __future__ import annotations

import asyncio
from datetime import date
from pathlib import Path

import pytest

from openconductor.cli import pool_init
from openconductor.cli.pool_init import KEYS, VENDORS, Draft, find_workers, pool_text
from openconductor.pool import WorkerPool
from openconductor.prices import FoundPrice

TODAY = date(2026, 11, 21)
SECRET = "canary-5f1e9c"


@pytest.fixture(autouse=True)
def no_local_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_init, "LOCAL", {})


def found(**environment: str) -> list[Draft]:
    return asyncio.run(find_workers(environment))


def test_the_file_of_every_key_loads_with_prices_and_without_a_key(tmp_path: Path) -> None:
    workers = found(**dict.fromkeys(KEYS, SECRET))
    text = pool_text(workers, today=TODAY)
    path = tmp_path / "pool.toml"
    path.write_text(text, "utf-8")
    pool = WorkerPool.from_toml(path)
    assert SECRET not in text
    assert [worker.name for _, worker in pool] == [one.name for one in workers]
    assert len(pool) == sum(len(vendor.models) for vendor in VENDORS)
    assert all(worker.price == one.price.price is not None for (_, worker), one in zip(pool, workers, strict=True))
    addresses = [worker.provider.base_url for _, worker in pool]
    assert addresses == [vendor.base_url for vendor in VENDORS for _ in vendor.models]


def test_every_setting_is_explained_once() -> None:
    head, *tables = pool_text(found(OPENAI_API_KEY=SECRET), today=TODAY).split("[[worker]]")
    settings = {line.partition(" = ")[0] for table in tables for line in table.splitlines()[1:] if line[:1] != "#"}
    assert all(head.count(f"#   {name} ") == 1 for name in settings if name)


def test_a_blank_key_counts_as_none_and_the_second_name_of_a_key_will_do() -> None:
    assert found(OPENAI_API_KEY=" ") == found() == []
    assert {one.api_key_env for one in found(GOOGLE_API_KEY=SECRET)} == {"GOOGLE_API_KEY"}
    assert {one.api_key_env for one in found(GOOGLE_API_KEY=SECRET, GEMINI_API_KEY=SECRET)} == {"GEMINI_API_KEY"}


def test_models_of_one_name_get_different_names_for_workers(tmp_path: Path) -> None:
    drafts: list[Draft] = []
    for model in ("qwen3", "org/qwen3", "other/qwen3"):
        name = pool_init._free_name(model, drafts)
        unknown = FoundPrice(None, "a server of your own")
        drafts.append(Draft(name, "ollama", model, "http://localhost:11434/v1", None, unknown, "served here"))
    assert [one.name for one in drafts] == ["qwen3", "qwen3-2", "qwen3-3"]
    path = tmp_path / "pool.toml"
    path.write_text(pool_text(drafts, today=TODAY), "utf-8")
    pool = WorkerPool.from_toml(path)
    assert [worker.price for _, worker in pool] == [None] * 3
    assert "not known: a server of your own" in path.read_text("utf-8")
