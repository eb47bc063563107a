"""Claims of records: each is made by one process at a time.

They are rows beside those of calls, by the key of the record, and end as these do. Nobody waits for
a record: who gets no claim asks again later.
"""

from __future__ import annotations

from collections.abc import Sequence

from openconductor.store.postgres.database import Database
from openconductor.store.store import ClaimedRecords

_KEPT = "SELECT DISTINCT key FROM outcomes WHERE key = ANY(?)"
# Rows are locked in the order of their keys, so that two processes never wait for each other.
_CLAIM = """INSERT INTO claims (key, owner)
    SELECT key, %(owner)s FROM (
        SELECT key FROM unnest(%(keys)s::text[]) WITH ORDINALITY AS wanted (key, place)
        WHERE NOT EXISTS (
            SELECT FROM claims JOIN processes ON processes.id = claims.owner
            WHERE claims.key = wanted.key AND claims.owner <> %(owner)s
                AND processes.until > clock_timestamp())
            AND NOT EXISTS (SELECT FROM outcomes WHERE outcomes.key = wanted.key)
        ORDER BY place LIMIT %(limit)s) AS free
    ORDER BY key
    ON CONFLICT (key) DO UPDATE SET owner = excluded.owner
    WHERE claims.owner = excluded.owner OR NOT EXISTS (
        SELECT FROM processes WHERE id = claims.owner AND until > clock_timestamp())
    RETURNING key"""


def claim_records(
    database: Database, owner: str, keys: Sequence[str], limit: int
) -> ClaimedRecords:
    """Claim records that nobody has kept and no other living process makes.

    Records that this process has claimed already are claimed again. A record may be claimed and
    kept: then another process kept it just now, and the claim is to be released.

    Raises:
        JournalError: the database failed.
    """
    if not keys:
        return ClaimedRecords([], [])
    values = {"owner": owner, "keys": list(keys), "limit": limit}
    with database.explained():
        claimed = database.fetch(_CLAIM, values)
        # After the claim, because another process may have kept a record just now.
        kept = database.fetch(_KEPT, (values["keys"],))
    return ClaimedRecords([row["key"] for row in claimed], [row["key"] for row in kept])
