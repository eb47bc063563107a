"""Public name of the SQLite store, ``Journal``; it is defined in ``openconductor.store``."""

from openconductor.store import Journal

__all__ = ["Journal"]
