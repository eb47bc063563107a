"""A journal as Parquet, for DuckDB, Polars and notebooks: one file a table.

In: a journal's file. Out: ``episodes.parquet``, ``rounds.parquet``, ``steps.parquet``, ``calls.parquet``,
``outcomes.parquet``, all of one moment. Needs pyarrow (the extra ``parquet``); memory stays bounded, whatever the
journal's size.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from openconductor.errors import ConfigError, JournalError
from openconductor.journal.schema import explanation, open_for_reading, texts_of
from openconductor.journal.text import dumps, loads, storable

_BATCH = 500  # rows
_NAMING = ("episode", "text", "reasoning")
_ORDER = {
    "episodes": ("number",),
    "rounds": ("episode", "round"),
    "steps": ("episode", "round", "step"),
    "calls": ("number",),
    "outcomes": ("number",),
}


def export_parquet(path: Path, folder: Path) -> list[Path]:
    """Write the tables of the journal at ``path`` into ``folder``, which is made where it is not there.

    Raises:
        ConfigError: pyarrow is not installed.
        JournalError: the journal cannot be read, or the folder not be written to.
    """
    try:
        arrow = import_module("pyarrow")
        parquet = import_module("pyarrow.parquet")
    except ImportError as error:
        raise ConfigError(f'export_parquet: {error}; expected pyarrow: pip install "openconductor[parquet]"') from error
    with closing(open_for_reading(path)) as connection:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            connection.execute("BEGIN")  # one moment for all tables, while the writer goes on
            written: list[Path] = []
            for table in _ORDER:
                written.append(folder / f"{table}.parquet")
                schema = arrow.schema([(name, _type(arrow, kind)) for name, kind in _columns(connection, table)])
                with parquet.ParquetWriter(str(written[-1]), schema, compression="zstd") as writer:
                    for columns in _batches(connection, table):
                        writer.write_batch(arrow.RecordBatch.from_pydict(columns, schema=schema))
            return written
        except (sqlite3.Error, OSError) as error:
            raise JournalError(f"journal {path}: cannot be exported to {folder}: {explanation(error)}") from error


def _columns(connection: sqlite3.Connection, table: str) -> list[tuple[str, str]]:
    """The columns of the table's file, with their types in SQLite; numbers that name something are texts there."""
    columns = connection.execute(f"PRAGMA table_info({table})")
    return [(row["name"], "TEXT" if row["name"] in _NAMING else row["type"]) for row in columns]


def _batches(connection: sqlite3.Connection, table: str) -> Iterator[dict[str, list[object]]]:
    names = [name for name, _ in _columns(connection, table)]
    chosen = ", ".join("episodes.id AS episode" if name == "episode" else f"t.{name}" for name in names)
    joined = "JOIN episodes ON episodes.number = t.episode" if "episode" in names else ""
    order = ", ".join(f"t.{column}" for column in _ORDER[table])
    rows = connection.execute(f"SELECT {chosen} FROM {table} AS t {joined} ORDER BY {order}")  # noqa: S608 - our names
    while batch := rows.fetchmany(_BATCH):
        columns: dict[str, list[object]] = {name: [row[name] for row in batch] for name in names}
        if table == "calls":
            texts = texts_of(connection, batch)
            for name in ("text", "reasoning"):
                columns[name] = [None if row[name] is None else storable(texts[row[name]]) for row in batch]
            columns["request"] = [_request(row, texts) for row in batch]
        yield columns


def _request(call: sqlite3.Row, texts: dict[int, str]) -> str | None:
    """The request as JSON with its texts in their places."""
    if call["request"] is None:
        return None
    request = cast("dict[str, object]", loads(call["request"]))
    for turn in cast("list[dict[str, object]]", request["messages"]):
        turn["content"] = texts[cast(int, turn["content"])]
        if "parts" in turn:
            turn["parts"] = loads(texts[cast(int, turn["parts"])])
    return dumps(request)


def _type(arrow: Any, kind: str) -> Any:
    return {"INTEGER": arrow.int64, "REAL": arrow.float64, "TEXT": arrow.string}[kind]()
