"""Which Conductor answers, over which pool. In: what the command line says. Out: a Conductor, or a ConfigError.

Without a word it is the bundled one over the gym's simulated workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openconductor.errors import ConfigError

if TYPE_CHECKING:
    from openconductor.conductor import Conductor, Planner
    from openconductor.journal import Journal
    from openconductor.pool import WorkerPool

OF_POOL = "worker"
"""``worker:NAME`` is the pool's worker of that name."""


def bundled_planner() -> str:
    """The folder of the Conductor that ships with the package.

    Raises:
        ConfigError: it is not there.
    """
    from openconductor.gym.bundled import bundled_folder

    return str(bundled_folder())


def find_planner(
    named: str | None, pool: WorkerPool, *, base_url: str | None = None, key_env: str | None = None
) -> Planner:
    """What ``--conductor`` names: ``provider:model``, a checkpoint folder, ``worker:NAME``; None is the bundled one.

    Raises:
        ConfigError: there is no such thing, or it does not take a URL or a key.
    """
    options: dict[str, object] = {}
    if base_url is not None:
        options["base_url"] = base_url
    if key_env is not None:
        options["api_key_env"] = key_env
    if named is None:
        if options:
            raise ConfigError("--conductor-base-url, --conductor-key-env: expected --conductor provider:model beside")
        return bundled_planner()
    kind, colon, name = named.partition(":")
    if kind == OF_POOL and colon:
        if options:
            raise ConfigError(f"--conductor {named}: takes its URL and key from the pool file, got them as options too")
        return pool[pool.ordinal_of(name)]
    if not options:
        return named
    if not (colon and kind and name):
        raise ConfigError(f"--conductor {named!r}: got a URL or a key for it, expected 'provider:model'")
    from openconductor.providers import create

    return create(kind, name, **options)


def replaying(conductor: Conductor, journal: Journal) -> None:
    """Let the planner and the workers answer from a journal what stands there: paid for before, and not again."""
    conductor.pool = conductor.pool.replaying(journal)
    conductor.asked = conductor.asked.replaying(journal)
