"""The store in PostgreSQL: what it has beside the promises that it shares with a file."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, cast

import pytest
from tests.places import DatabasePlace
from tests.postgres_server import PostgresServer
from tests.unit.store.journaled import one_call

from openconductor import ConfigError, JournalError
from openconductor.events import Answered, Asked
from openconductor.store import (
    EpisodeFilter,
    check_store,
    open_store,
    place_name,
    prune_store,
    read_store,
)
from openconductor.types import Episode, Message, Sampling, Usage


def test_processes_that_open_an_empty_database_at_once_make_its_tables_once(
    database: DatabasePlace,
) -> None:
    with ThreadPoolExecutor(6) as threads:
        stores = list(threads.map(lambda _: open_store(database.name), range(6)))
    for number, store in enumerate(stores):
        store(one_call(episode=f"e{number}"))
        store.close()
    assert database.rows("SELECT version, count(*) FROM openconductor_store GROUP BY 1") == [(2, 1)]
    assert database.rows("SELECT count(*) FROM calls") == [(6,)]
    assert database.rows("SELECT count(*) FROM processes") == [(0,)]


def test_a_database_without_a_store_is_not_read_and_may_become_one(database: DatabasePlace) -> None:
    with pytest.raises(JournalError, match="the database is empty"):
        read_store(database.name)
    check_store(database.name)
    assert database.rows("SELECT to_regclass('episodes')") == [(None,)]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("CREATE TABLE episodes (title text)", "tables of another program"),
        ("UPDATE openconductor_store SET version = 99", "schema version 99, .* at most 2"),
    ],
)
def test_tables_that_are_not_ours_are_refused_and_left_alone(
    database: DatabasePlace, statement: str, expected: str
) -> None:
    if statement.startswith("UPDATE"):
        database.open().close()
    database.rows(statement)
    for opening in (open_store, read_store, check_store):
        with pytest.raises(JournalError, match=expected):
            opening(database.name)
    assert database.rows("SELECT count(*) FROM episodes") == [(0,)]


def test_a_database_of_another_encoding_is_refused_with_the_way_to_make_one(
    postgres: PostgresServer,
) -> None:
    import psycopg

    place = postgres.new_place()
    name = f"plain_{uuid.uuid4().hex}"
    options = "ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0"
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} {options}".encode())
    plain = place.replace("/postgres?", f"/{name}?")
    for opening in (open_store, read_store, check_store):
        with pytest.raises(JournalError, match=r"has the encoding SQL_ASCII, .* ENCODING 'UTF8'"):
            opening(plain)
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name}".encode())


def test_a_database_that_cannot_be_reached_is_named_without_its_password() -> None:
    url = "postgresql://ann:secret@127.0.0.1:1/oc?connect_timeout=1"
    assert place_name(url) == "postgresql://127.0.0.1:1/oc"
    with pytest.raises(JournalError, match=r"store postgresql://127\.0\.0\.1:1/oc: ") as caught:
        open_store(url)
    assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError, match="the URL cannot be read") as unreadable:
        open_store("postgresql://ann:secret%zz@db/oc")
    assert "secret" not in str(unreadable.value)


@pytest.mark.parametrize("password", ["se#cret", "se?cret", "se/cret"])
def test_a_password_with_an_unescaped_character_is_not_shown_in_part(password: str) -> None:
    shown = place_name(f"postgresql://ann:{password}@db/oc")
    assert shown == "postgresql://…"


def test_two_writers_number_their_messages_and_texts_apart(database: DatabasePlace) -> None:
    first, second = database.open(), database.open()
    chats = [[Message("user", f"{number}: " + "w" * 80)] for number in range(6)]
    for number, chat in enumerate(chats):
        store = first if number % 2 else second
        store(Asked(f"e{number}", 0, 0.0, chat))
        store(one_call(episode=f"e{number}", messages=tuple(chat)))
        store.flush()
    with first, second, database.read() as reader:
        for number, chat in enumerate(chats):
            assert reader.episode(f"e{number}").question == tuple(chat)
            assert [call.messages for call in reader.calls(f"e{number}")] == [tuple(chat)]
    assert database.rows("SELECT count(*), count(DISTINCT number) FROM messages") == [(6, 6)]


def test_episodes_are_found_by_texts_that_json_can_hardly_hold(database: DatabasePlace) -> None:
    odd = 'a \0 b \\u0000 "c" \ud800 d\\'
    with database.open() as store:
        store(Asked("chat", 0, 0.0, [Message("user", odd + "w" * 80)]))
        store(Asked("text", 0, 0.0, odd))
        store.flush()
        for sought in ("b \\u0000", '"C"', "d\\"):
            assert {episode.id for episode in store.episodes(text=sought)} == {"chat", "text"}
        assert store.episodes(text="user") == []
        assert store.episode("chat").question[0].content == odd + "w" * 80


def test_what_is_sought_by_a_text_with_a_nul_is_found_or_unknown(database: DatabasePlace) -> None:
    answered = Episode("?", (), "a \0 b", None, Usage(), 0.0)
    with database.open() as store:
        store(Asked("e1", 0, 0.0, "?"))
        store(Answered("e1", 0, 0.0, answered))
        store.put_record("k\0", {"kept": True})
        store.flush()
        assert [line.id for line in store.lines(EpisodeFilter(text="A \0 B"))] == ["e1"]
        assert [episode.id for episode in store.episodes(text="\0")] == ["e1"]
        assert store.lines(EpisodeFilter(identifier="e1\0")) == []
        assert store.find_record("k\0") == {"kept": True}


@pytest.mark.parametrize("odd", ["\0", "\ud800"])
def test_settings_that_json_can_hardly_hold_keep_nothing_from_being_removed(
    database: DatabasePlace, odd: str
) -> None:
    settings = Sampling(body={"stop": [odd]})
    with database.open() as store:
        for episode in ("old", "new"):
            store(Asked(episode, 0, 0.0, "?"))
            store(one_call(episode=episode, sampling=settings))
        store.flush()
        database.rows("UPDATE episodes SET started = 0 WHERE id = 'old'")
        assert prune_store(database.name, 1.0)["episodes"] == 1
        (call,) = store.calls()
        assert (call.episode, call.sampling) == ("new", settings)
    assert database.rows("SELECT role, content FROM turns") == [("user", "What is 2 + 2?")]


def test_a_removal_that_fails_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from openconductor.store.postgres import removal

    def fail(*_: object) -> None:
        raise JournalError("the database is away")

    told: SimpleQueue[str] = SimpleQueue()
    monkeypatch.setattr(removal, "prune_database", fail)
    monkeypatch.setattr(removal, "EVERY_S", 0.0)
    monkeypatch.setattr(removal.log, "warning", lambda form, error: told.put(form % error))
    remover = removal.Remover(cast("Any", None), 1.0)
    for _ in range(2):
        assert told.get(timeout=10).endswith("the database is away")
    remover.stop()


def test_a_list_that_goes_on_begins_in_the_index(database: DatabasePlace) -> None:
    import psycopg

    from openconductor.store.postgres.postgres_reader import _EPISODES

    database.open().close()
    values = {"before": "e1", "outcome": None, "text": None, "limit": 5}
    with psycopg.connect(database.name, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute("SET enable_seqscan = off")
        plan = connection.execute(f"EXPLAIN {_EPISODES}".encode(), values).fetchall()
    assert any("Index Cond: (number <" in line for (line,) in plan), plan


def test_a_batch_loses_nothing_if_the_connection_is_cut_while_it_is_numbered(
    database: DatabasePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from openconductor.store.postgres import postgres_writer

    monkeypatch.setattr(postgres_writer, "BLOCK", 1)
    next_number = postgres_writer.PostgresWriter._next_number
    calls = 0

    def cut_at_the_second(writer: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            database.rows(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND datname = current_database()"
            )
        return next_number(writer)

    monkeypatch.setattr(postgres_writer.PostgresWriter, "_next_number", cut_at_the_second)
    asked = [(Message("user", "First?"),), (Message("user", "Second?"),)]
    with database.open() as store:
        store.put_episode([one_call(messages=messages) for messages in asked])
    assert calls >= 2
    with database.read() as reader:
        assert [call.messages for call in reader.calls("e1")] == asked


def test_a_transaction_that_stands_still_is_ended_and_frees_its_locks(
    database: DatabasePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    from openconductor.store.postgres import database as database_module

    limits = database_module.TIMEOUTS.replace("15s", "100ms")
    monkeypatch.setattr(database_module, "TIMEOUTS", limits)
    row = "SELECT FROM openconductor_store FOR UPDATE"

    def stand_still(store: Any) -> None:
        with store._database.transaction() as connection:
            connection.execute(row)
            with psycopg.connect(database.name) as other:
                other.execute("SET lock_timeout = '20s'")
                other.execute(row)

    with database.open() as store:
        with pytest.raises(psycopg.Error):
            stand_still(store)
        assert store.episodes() == []


def before_each_attempt(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]) -> list[int]:
    """Act before each attempt to add the rows of a batch; the attempts so far, from 1, are listed.

    ``act`` is called with the number of the attempt.
    """
    from openconductor.store.postgres.postgres_writer import PostgresWriter

    add = PostgresWriter._add
    attempts: list[int] = []

    def act_and_add(writer: Any, *arguments: Any) -> None:
        attempts.append(len(attempts) + 1)
        act(attempts[-1])
        add(writer, *arguments)

    monkeypatch.setattr(PostgresWriter, "_add", act_and_add)
    return attempts


def test_a_batch_whose_transaction_the_server_ended_is_written_again(
    database: DatabasePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from openconductor.store.postgres import postgres_writer

    begin = postgres_writer.BEGIN.replace("15s", "50ms")
    monkeypatch.setattr(postgres_writer, "BEGIN", begin)

    def be_late(attempt: int) -> None:
        if attempt == 1:
            database.rows("SELECT pg_sleep(0.3)")

    attempts = before_each_attempt(monkeypatch, be_late)
    with database.open() as store:
        store(one_call())
        store.flush()
        assert attempts == [1, 2]
        assert len(list(store.calls())) == 1


def test_a_batch_waits_for_a_lock_longer_than_for_a_database_that_is_away(
    database: DatabasePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    from openconductor.store.postgres import postgres_writer

    begin = postgres_writer.BEGIN.replace("20s", "50ms")
    monkeypatch.setattr(postgres_writer, "BEGIN", begin)
    monkeypatch.setattr(postgres_writer, "_PATIENCE_S", 0.0)

    signs: set[object] = set()

    def unlock_at_last(attempt: int) -> None:
        signs.update(database.rows("SELECT batch FROM processes"))
        if attempt == 3:
            other.rollback()

    attempts = before_each_attempt(monkeypatch, unlock_at_last)
    with database.open() as store, psycopg.connect(database.name) as other:
        other.execute("LOCK TABLE calls")
        store(one_call())
        store.flush()
        assert attempts == [1, 2, 3]
        assert len(signs) == 3  # others see that it lives while it waits
        assert len(list(store.calls())) == 1


def test_nobody_waits_behind_a_prune_that_waits_for_a_long_batch(database: DatabasePlace) -> None:
    import psycopg

    from openconductor.store.postgres.database import LOCK, WRITING

    with (
        database.open() as store,
        ThreadPoolExecutor(2) as threads,
        psycopg.connect(database.name) as copying,
    ):
        copying.execute("SELECT pg_advisory_xact_lock_shared(%s, %s)", (LOCK, WRITING))
        pruning = threads.submit(prune_store, database.name, 1.0)
        waiting = "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while database.rows(waiting) == [(False,)]:
            assert not pruning.done()
        store(one_call())
        try:
            threads.submit(store.flush).result(timeout=10)
            assert not pruning.done()
        finally:
            copying.rollback()
        assert pruning.result(timeout=20)["episodes"] == 0


def test_a_prune_gives_up_on_a_batch_that_takes_minutes(
    database: DatabasePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    from openconductor.store.postgres import removal
    from openconductor.store.postgres.database import LOCK, WRITING

    monkeypatch.setattr(removal, "_ATTEMPTS", 1)
    monkeypatch.setattr(removal, "_PAUSE_S", 0.0)
    database.open().close()
    with psycopg.connect(database.name) as copying:
        copying.execute("SELECT pg_advisory_xact_lock_shared(%s, %s)", (LOCK, WRITING))
        with pytest.raises(JournalError, match="another process is writing all the time"):
            prune_store(database.name, 1.0)


def test_a_batch_whose_connection_was_lost_survives_a_prune_meanwhile(
    database: DatabasePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    from openconductor.store.postgres.postgres_writer import PostgresWriter

    add = PostgresWriter._add
    losses = iter([psycopg.OperationalError("the connection is lost")])
    question = "Which numbers are prime? " * 4
    asked = (Message("user", question),)

    def lose_the_connection(writer: Any, *arguments: Any) -> None:
        for error in losses:
            writer._disconnect()
            prune_store(database.name, 1.0)
            raise error
        add(writer, *arguments)

    with database.open() as store:
        store(Asked("old", 0, 0.0, question))
        store(one_call(episode="old", messages=asked))
        store(Asked("secret", 0, 0.0, question, keep_texts=False))
        store(Asked("new", 0, 0.0, question))
        store.flush()
        database.rows("UPDATE episodes SET started = 0 WHERE id = 'old'")
        monkeypatch.setattr(PostgresWriter, "_add", lose_the_connection)
        answered = Episode(question, (), "4", None, Usage(), 0.0)
        for episode in ("secret", "new"):
            store.put_episode(
                [one_call(episode=episode, messages=asked), Answered(episode, 0, 0.0, answered)]
            )
        store.flush()
        assert store.episode("old") is None
        (call,) = store.calls("new")
        assert call.messages == asked and call.key is not None
        (secret,) = store.calls("secret")
        assert secret.messages == () and secret.key is not None
