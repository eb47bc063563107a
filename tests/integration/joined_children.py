"""A program whose children join an evaluation. Their leases are short, so that tests are quick."""

from __future__ import annotations

from nursery import nursery
from sums import import_all

from openconductor import cli
from openconductor.store.postgres import postgres_store, postgres_writer

LEASE_S = 2.0

if __name__ == "__main__":
    import_all()
    assert postgres_store is not None  # imported, as all else that a child needs
    postgres_writer.LEASE_S = LEASE_S
    nursery(cli.main)
