"""Keys in a store: made and revoked by any process, and let in by servers."""

from __future__ import annotations

import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.places import FilePlace, OpenPlace

from openconductor.errors import ConfigError
from openconductor.serving.apis.wire import RequestFailed
from openconductor.serving.key_ring import KeyRing, hash_key
from openconductor.serving.serve_config import KeyTable
from openconductor.serving.shared.key_book import (
    KeyBook,
    KeyClash,
    NoSuchKey,
    keys_in,
    let_in,
    look,
    names_in_config,
)
from openconductor.store import Journal, copy_store, open_records, read_store


def accept(key: KeyTable) -> None:
    pass


def add(store: Any, name: str, **limits: object) -> str:
    return KeyBook(store).add({"name": name, **limits}, accept).key


def name_of(ring: KeyRing, key: str) -> str | None:
    """Return the name of a key that is let in."""
    try:
        return ring.find({"x-api-key": key}).name
    except RequestFailed:
        return None


@pytest.fixture
def journal(tmp_path: Path) -> Any:
    with Journal(tmp_path / "serve.sqlite") as journal:
        yield journal


def test_keys_are_made_and_revoked_beside_the_writer_of_a_store(new_place: OpenPlace) -> None:
    place = new_place()
    with place.open() as server, open_records(place.name) as other:
        key = add(other, "ann", dollars="2.50", models=["conductor"])
        server.put_record("mine", {"is": "kept"})
        server.flush()
        (booked,) = keys_in(server)
        assert booked.table == KeyTable(
            "ann", hash_key(key), dollars=Decimal("2.50"), models=("conductor",)
        )
        add(server, "bob")
        KeyBook(other).revoke("ann")
        assert [booked.revoked is None for booked in keys_in(other)] == [False, True]
        assert server.find_record("mine") == {"is": "kept"}
    assert key.encode() not in place.everything()


def test_two_processes_cannot_make_a_key_of_one_name(new_place: OpenPlace) -> None:
    place = new_place()
    ended: list[str] = []
    with place.open() as server, open_records(place.name) as other:

        def make(store: Any) -> None:
            try:
                add(store, "ann")
            except KeyClash:
                ended.append("clash")
            else:
                ended.append("made")

        threads = [threading.Thread(target=make, args=(store,)) for store in (server, other) * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(ended) == ["clash"] * 7 + ["made"]
        assert len(keys_in(server)) == 1


def test_a_store_without_a_file_is_made_for_its_first_key_alone(tmp_path: Path) -> None:
    path = tmp_path / "serve.sqlite"
    with open_records(path) as store:
        add(store, "ann")
    with read_store(path) as reader:
        assert [booked.table.name for booked in keys_in(reader)] == ["ann"]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"name": "a", "dolars": 2}, "nearest known key is 'dollars'"),
        ({"name": "a", "rpm": 0}, "rpm"),
        ({"name": "a", "period": "day"}, "requires dollars"),
        ({"name": "a", "admin": True}, "only a key in the server's config"),
        ({"name": "a", "hash": "x"}, "leave it out"),
        ({"name": " "}, "name"),
        ({"name": "a\nb"}, "printable"),
        ({"name": "a" * 257}, "256"),
        ({}, "name"),
    ],
)
def test_a_key_that_cannot_be_is_refused(journal: Any, limits: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        KeyBook(journal).add(limits, accept)
    assert keys_in(journal) == []


def test_a_name_with_a_secret_is_refused_and_not_shown(
    journal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "canary-canary")
    with pytest.raises(ConfigError) as caught:
        add(journal, "of canary-canary")
    assert "canary" not in str(caught.value)


async def test_a_server_lets_in_what_is_made_and_refuses_what_is_revoked(journal: Any) -> None:
    ring = KeyRing([KeyTable("ann", hash_key("oc-ann"))], journal)
    key = add(journal, "bob", dollars=1)
    assert name_of(ring, key) is None
    await look(ring, journal)
    assert (name_of(ring, key), name_of(ring, "oc-ann")) == ("bob", "ann")
    tenant = ring.named("bob")
    with tenant.admit() as bill:
        KeyBook(journal).revoke("bob")
        await look(ring, journal)
        assert name_of(ring, key) is None
        assert bill.budget is not None
        bill.budget.check_call()  # what is under way ends as it began
    await look(ring, journal)
    assert name_of(ring, "oc-ann") == "ann"


async def test_a_key_that_is_made_again_goes_on_with_what_its_name_has_spent(journal: Any) -> None:
    ring = KeyRing([], journal)
    add(journal, "bob", dollars=1)
    await look(ring, journal)
    with ring.named("bob").admit() as bill:
        bill.budget.add(dollars=Decimal("0.75"))
        KeyBook(journal).revoke("bob")
        key = add(journal, "bob", dollars=2)
        await look(ring, journal)
        with ring.find({"x-api-key": key}).admit() as later:
            assert later.budget.used["dollars"] == Decimal("0.75")
            assert later.budget.budget.dollars == 2


async def test_a_key_that_is_as_it_was_keeps_its_tenant(journal: Any) -> None:
    ring = KeyRing([], journal)
    add(journal, "bob", concurrency=1)
    await look(ring, journal)
    with ring.named("bob").admit():
        add(journal, "eve")
        await look(ring, journal)
        with pytest.raises(RequestFailed, match="1 requests at once"), ring.named("bob").admit():
            pass


async def test_once_there_was_a_key_nobody_asks_without_one(journal: Any) -> None:
    ring = KeyRing([], journal)
    assert ring.is_open and ring.find({}).name == ""
    add(journal, "bob")
    KeyBook(journal).revoke("bob")
    await look(ring, journal)
    assert not ring.is_open
    assert name_of(ring, "") is None
    later = KeyRing([], journal)
    let_in(later, keys_in(journal))
    assert not later.is_open


def test_a_config_with_the_name_of_a_key_in_the_store_is_refused(journal: Any) -> None:
    add(journal, "bob")
    with pytest.raises(KeyClash, match="is in the config and in the journal"):
        KeyBook(journal).announce(["ann", "bob"])
    KeyBook(journal).revoke("bob")
    KeyBook(journal).announce(["ann", "bob"])
    assert names_in_config(journal) == ["ann", "bob"]
    with pytest.raises(KeyClash, match="is in the server's config"):
        add(journal, "ann")
    with pytest.raises(NoSuchKey, match="remove it there"):
        KeyBook(journal).revoke("ann")


def test_the_keys_of_a_file_are_copied_into_a_database(tmp_path: Path, postgres: Any) -> None:
    file = FilePlace(tmp_path / "serve.sqlite")
    with open_records(file.name) as store:
        add(store, "ann")
        booked = keys_in(store)
    url = postgres.new_place()
    copy_store(file.path, url)
    with read_store(url) as reader:
        assert keys_in(reader) == booked
