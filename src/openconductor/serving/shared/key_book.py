"""The keys that are in a store, beside those of the config.

They are one record, which any process may change: ``openconductor keys``, and a server that is
asked by an admin key. Each server reads it again and again (``follow``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any

from openconductor.config import Table, nearest, validate
from openconductor.errors import ConfigError, JournalError
from openconductor.privacy import secrets_of_environment
from openconductor.serving.key_ring import KeyRing, new_key
from openconductor.serving.serve_config import KeyTable
from openconductor.store import RecordReader, RecordStore

RECORD = "keys"
"""The key of the record."""
_POLL_S = 1.0  # between two looks of a server
_LONGEST = 256  # characters of a name
_OWN_FIELDS = ("name", "hash", "admin")
LIMIT_NAMES = tuple(field.name for field in fields(KeyTable) if field.name not in _OWN_FIELDS)
"""What a key may be limited to, by the names that the config has for it."""


class KeyClash(ConfigError):
    """A key of this name is there already."""


class NoSuchKey(ConfigError):
    """There is no key of this name that could be revoked."""


@dataclass(frozen=True, slots=True)
class BookedKey:
    """A key in a store.

    Attributes:
        table: its name, hash and limits.
        made: seconds since 1970.
        revoked: seconds since 1970; None: it is valid.
    """

    table: KeyTable
    made: float
    revoked: float | None = None

    def shown(self) -> dict[str, object]:
        """Return what may be shown: everything but the hash."""
        return {
            "name": self.table.name,
            **limits_of(self.table),
            "made": self.made,
            "revoked": self.revoked,
        }


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was made just now, which is shown once."""

    key: str
    booked: BookedKey


def limits_of(table: KeyTable) -> dict[str, object]:
    """Return the limits that a key has; dollars are strings."""
    limits: dict[str, object] = {}
    for name in LIMIT_NAMES:
        value = getattr(table, name)
        if value is not None:
            limits[name] = str(value) if name.endswith("dollars") else value
    return limits


def keys_in(store: RecordReader) -> list[BookedKey]:
    """Return the keys in a store, the revoked ones too, in the order in which they were made.

    Raises:
        JournalError: the store cannot be read.
        ConfigError: a newer version has written something else.
    """
    return _read_keys(store.find_record(RECORD))


def names_in_config(store: RecordReader) -> list[str]:
    """Return the names of the keys in the config of the server that was started last."""
    return _read_config(store.find_record(RECORD))


class KeyBook:
    """Changes the keys in a store.

    Args:
        store: holds them.
    """

    def __init__(self, store: RecordStore) -> None:
        self._store = store

    def add(self, limits: Mapping[str, object], check: Callable[[KeyTable], None]) -> NewKey:
        """Make a key; it is durable when this returns.

        A name whose key was revoked may have a new one: its episodes and what it spent stay.

        Args:
            limits: its ``name``, and its limits as in a config.
            check: raises ConfigError if a server cannot serve the key.

        Raises:
            ConfigError: a limit is unknown or has a wrong value, or the name cannot be used.
            KeyClash: a valid key has this name, here or in the config.
            JournalError: the store failed.
        """
        key, hashed = new_key()
        booked = BookedKey(_read_limits(limits, hashed), time.time())
        check(booked.table)
        name = booked.table.name

        def change(record: Mapping[str, Any] | None) -> Table:
            keys = _read_keys(record)
            config = _read_config(record)
            if name in config:
                raise KeyClash(f"key {name!r}: is in the server's config; choose another name")
            if any(other.table.name == name and other.revoked is None for other in keys):
                raise KeyClash(f"key {name!r}: is there already; revoke it, or choose another name")
            kept = [other for other in keys if other.table.name != name]
            return _write([*kept, booked], config)

        self._store.change_record(RECORD, change)
        return NewKey(key, booked)

    def revoke(self, name: str) -> BookedKey:
        """Revoke a key; that is durable when this returns.

        Raises:
            NoSuchKey: no valid key in the store has this name.
            JournalError: the store failed.
        """

        def change(record: Mapping[str, Any] | None) -> Table:
            keys = _read_keys(record)
            config = _read_config(record)
            valid = [key for key in keys if key.table.name == name and key.revoked is None]
            if not valid:
                raise _no_such_key(name, keys, config)
            revoked = replace(valid[0], revoked=time.time())
            return _write([revoked if key is valid[0] else key for key in keys], config)

        self._store.change_record(RECORD, change)
        return next(key for key in keys_in(self._store) if key.table.name == name)

    def announce(self, config: Sequence[str]) -> list[BookedKey]:
        """Keep the names of the keys in a server's config, and return the keys of the store.

        Raises:
            KeyClash: a key of the store has one of these names.
            JournalError: the store failed.
        """

        def change(record: Mapping[str, Any] | None) -> Table:
            keys = _read_keys(record)
            _check_clash(keys, config)  # in the change, so that no key is added between the two
            return _write(keys, config)

        _check_clash(keys_in(self._store), config)
        if sorted(config) != sorted(names_in_config(self._store)):
            self._store.change_record(RECORD, change)
        return keys_in(self._store)


def _check_clash(keys: Sequence[BookedKey], config: Sequence[str]) -> None:
    """Check that no valid key of the store has the name of one in the config.

    Raises:
        KeyClash: one has.
    """
    for booked in keys:
        name = booked.table.name
        if booked.revoked is None and name in config:
            raise KeyClash(
                f"key {name!r}: is in the config and in the journal; revoke that one "
                f"(openconductor keys revoke {name}), or rename a key"
            )


def _read_config(record: Mapping[str, Any] | None) -> list[str]:
    return list((record or {}).get("config", ()))


def _read_keys(record: Mapping[str, Any] | None) -> list[BookedKey]:
    keys: list[BookedKey] = []
    for entry in (record or {}).get("keys", ()):
        table = validate(entry["table"], KeyTable, where=f"record {RECORD!r}")
        keys.append(BookedKey(table, entry["made"], entry["revoked"]))
    return keys


def _write(keys: Sequence[BookedKey], config: Sequence[str]) -> Table:
    """Return the record of keys, and of the names of those in the config."""
    entries: list[Table] = []
    for booked in keys:
        table = {"name": booked.table.name, "hash": booked.table.hash, **limits_of(booked.table)}
        entries.append({"table": table, "made": booked.made, "revoked": booked.revoked})
    return {"config": list(config), "keys": entries}


def _read_limits(limits: Mapping[str, object], hashed: str) -> KeyTable:
    """Return the table of a new key.

    Raises:
        ConfigError: a limit is unknown or has a wrong value, or the name cannot be used.
    """
    where = f"key {limits.get('name')!r}"
    if "admin" in limits:
        raise ConfigError(f"{where}: admin: only a key in the server's config can be one")
    if "hash" in limits:
        raise ConfigError(f"{where}: hash: the key is made here; leave it out")
    table = validate({**limits, "hash": hashed}, KeyTable, where=where)
    name = table.name
    if not name.isprintable() or name != name.strip() or len(name) > _LONGEST:
        raise ConfigError(
            f"{where}: name: expected at most {_LONGEST} printable characters, without blanks "
            "around them"
        )
    if any(secret in name for secret in secrets_of_environment()):
        raise ConfigError(
            "key: name: it (not shown) contains the value of an environment variable that looks "
            "like a secret, which the journal would not keep"
        )
    if table.period is not None and table.dollars is None:
        raise ConfigError(f"{where}: period {table.period!r} requires dollars")
    return table


def _no_such_key(name: str, keys: Sequence[BookedKey], config: Sequence[str]) -> NoSuchKey:
    if name in config:
        return NoSuchKey(f"key {name!r}: is in the server's config; remove it there, and restart")
    if any(booked.table.name == name for booked in keys):
        return NoSuchKey(f"key {name!r}: was revoked before")
    valid = [booked.table.name for booked in keys if booked.revoked is None]
    hint = f"; the nearest is {nearest(name, valid)!r}" if valid else "; there is none"
    return NoSuchKey(f"key {name!r}: there is no such key{hint}")


# ── a server ──────────────────────────────────────────────────────────────────────────────────────
def let_in(ring: KeyRing, keys: Sequence[BookedKey]) -> None:
    """Let in the valid keys of a store, before a server begins."""
    valid = _valid(keys)
    ring.let_in(valid, ring.read_past(ring.unknown_among(valid)), is_keyed=bool(keys))


async def look(ring: KeyRing, store: RecordReader) -> None:
    """Let in the keys that are valid now, and no other.

    Raises:
        JournalError: the store cannot be read.
    """
    keys = await asyncio.to_thread(keys_in, store)
    valid = _valid(keys)
    past = await asyncio.to_thread(ring.read_past, ring.unknown_among(valid))
    ring.let_in(valid, past, is_keyed=bool(keys))


async def follow(ring: KeyRing, store: RecordReader) -> None:
    """Look whenever the record of the keys has changed, for ever."""
    seen: Mapping[str, Any] | None = None
    while True:
        await asyncio.sleep(_POLL_S)
        # Requests that need the store tell of it; a newer version may write what this cannot read.
        with suppress(JournalError, ConfigError):
            record = await asyncio.to_thread(store.find_record, RECORD)
            if record != seen:
                await look(ring, store)
                seen = record


def _valid(keys: Sequence[BookedKey]) -> list[KeyTable]:
    return [booked.table for booked in keys if booked.revoked is None]
