"""The SQL of lists of episodes in PostgreSQL; ``overview`` has that of a file."""

from __future__ import annotations

from collections.abc import Mapping

from openconductor.store.overview import EXCERPT, RECORD, EpisodeFilter, EpisodeOrder

_QUESTION = """CASE WHEN json_typeof(question::json) = 'array' THEN
    (SELECT readable(message) ->> 'content' FROM whole_messages
        WHERE whole_messages.number = CASE WHEN json_typeof(question::json -> -1) = 'number'
            THEN (question::json ->> -1)::bigint END)
    ELSE readable(question) #>> '{}' END"""

_CONDITIONS = {
    "identifier": "episodes.id = %(identifier)s",
    "outcome": "episodes.outcome = %(outcome)s",
    "worker": """EXISTS (SELECT 1 FROM calls WHERE calls.episode = episodes.id
        AND calls.worker = %(worker)s AND calls.step IS NOT NULL)""",
    "error": "readable(episodes.error) ->> 'type' = %(error)s",
    "text": f"""(episodes.answer ILIKE %(text)s ESCAPE '!'
        OR {_QUESTION} ILIKE %(text)s ESCAPE '!')""",
    "since": "episodes.started >= %(since)s",
    "key": f"readable({RECORD}) ->> 'key' = %(key)s",
    "task": """episodes.id IN (SELECT readable(record) ->> 'episode' FROM outcomes
        WHERE readable(record) ->> 'task' = %(task)s)""",
}
_ORDERS: Mapping[EpisodeOrder, str] = {
    "latest": "episodes.number DESC",
    "dollars": "(usage::json ->> 'dollars')::numeric DESC NULLS LAST, episodes.number DESC",
    "tokens": """(usage::json ->> 'input_tokens')::numeric
        + (usage::json ->> 'output_tokens')::numeric DESC NULLS LAST, episodes.number DESC""",
    "seconds": "episodes.seconds DESC NULLS LAST, episodes.number DESC",
}

_LINES = f"""SELECT episodes.id, started, outcome, seconds, usage, error,
    substr(answer, 1, {EXCERPT}) AS answer_text,
    substr({_QUESTION}, 1, {EXCERPT}) AS question_text,
    CASE WHEN usage IS NULL THEN coalesce((SELECT json_agg(calls.usage::json)::text FROM calls
        WHERE calls.episode = episodes.id), '[]') END AS spent,
    coalesce((SELECT json_agg(worker ORDER BY first)::text FROM (
        SELECT worker, min(number) AS first FROM calls
        WHERE calls.episode = episodes.id AND step IS NOT NULL GROUP BY worker) AS workers), '[]')
        AS called,
    (SELECT count(*) FROM calls WHERE calls.episode = episodes.id) AS calls,
    (SELECT count(*) FROM rounds WHERE rounds.episode = episodes.id) AS rounds,
    (SELECT count(*) FROM steps WHERE steps.episode = episodes.id) AS steps,
    only_step IS NOT NULL AS was_only_step, {RECORD} AS served
    FROM episodes WHERE number IN (SELECT number FROM episodes WHERE """  # noqa: S608


def lines_query(chosen: EpisodeFilter) -> tuple[str, dict[str, object]]:
    """Return the SQL of a page of a list, and the values of the filter."""
    values = chosen.values()
    conditions = " AND ".join(["TRUE", *(_CONDITIONS[name] for name in values)])
    order = _ORDERS[chosen.order]
    page = f"{conditions} ORDER BY {order} LIMIT %(limit)s OFFSET %(offset)s"
    return f"{_LINES} {page}) ORDER BY {order}", values
