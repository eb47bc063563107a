"""Reading a store in PostgreSQL, while it is written or long after."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from openconductor.store.overview import EpisodeFilter
from openconductor.store.postgres.database import READING_S, Database
from openconductor.store.postgres.lists import lines_query
from openconductor.store.reader import RowReader, parse_json
from openconductor.types import Completion

# The largest bigint stands for no end. A numeric there would keep the index from being used.
_EPISODES = """SELECT * FROM episodes
    WHERE number < coalesce((SELECT number FROM episodes WHERE id = %(before)s),
        9223372036854775807)
    AND outcome = coalesce(%(outcome)s, outcome)
    AND (%(text)s::text IS NULL OR answer ILIKE %(text)s ESCAPE '!' OR
        CASE WHEN json_typeof(question::json) = 'string'
        THEN readable(question) #>> '{}' ILIKE %(text)s ESCAPE '!'
        ELSE EXISTS (
            SELECT 1 FROM json_array_elements(question::json) AS turns (named)
            JOIN whole_messages ON whole_messages.number = CASE WHEN json_typeof(named) = 'number'
                THEN named::text::bigint END
            WHERE readable(message) ->> 'content' ILIKE %(text)s ESCAPE '!') END)
    ORDER BY number DESC LIMIT %(limit)s"""
# OFFSET 0 keeps the inner query by itself: each key is looked up in the index. Joined to the keys,
# the planner would rather read the whole table for them.
_COMPLETIONS = """SELECT DISTINCT ON (answered.key) answered.*
    FROM unnest(?::text[]) AS wanted (key), LATERAL (
        SELECT * FROM calls WHERE calls.key = wanted.key AND replayable OFFSET 0) AS answered
    ORDER BY answered.key, answered.number"""


class PostgresReader(RowReader):
    """A store in PostgreSQL that is only read. A context manager; any thread may use it.

    Args:
        database: holds the store.

    Raises:
        JournalError: it cannot be opened, there is no store in it, or it has a newer version.
    """

    _usage_field = "(usage::json ->> '{}')::numeric"
    _number_in = "number IN (SELECT value::bigint FROM json_array_elements_text(?::json))"
    _episode_in = "episode IN (SELECT json_array_elements_text(?::json))"

    def __init__(self, database: Database, *, for_writing: bool = False) -> None:
        self._database = database
        self.title = database.title
        database.open(for_writing=for_writing)

    def close(self) -> None:
        """Close all connections; reading later raises JournalError."""
        self._database.close()

    def find_completions(self, keys: Sequence[str]) -> dict[str, Completion]:
        """Return what ``find_completion`` does, by key; unknown keys are left out."""
        found: dict[str, Completion] = {}
        for call in self._calls(self._rows(_COMPLETIONS, (list(keys),))):
            if call.key is not None and call.completion is not None:
                found[call.key] = call.completion
        return found

    def _rows(
        self, query: str, values: Sequence[object] | Mapping[str, object] = ()
    ) -> list[dict[str, Any]]:
        """Return the rows of a query, with their JSON parsed."""
        with self._explained():
            with self._database.explained():
                rows = self._database.fetch(query, values, limit_s=READING_S)
            for row in rows:
                parse_json(row)
            return rows

    def _written_since(self) -> float:
        query = "SELECT 1 AS alive FROM processes WHERE until > clock_timestamp() LIMIT 1"
        return 0.0 if self._rows(query) else math.inf

    def _episodes_query(self) -> str:
        return _EPISODES

    def _lines_query(self, chosen: EpisodeFilter) -> tuple[str, dict[str, object]]:
        return lines_query(chosen)
