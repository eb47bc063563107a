"""Which Conductor answers, over which pool. In: what the command line says. Out: a Conductor, or a ConfigError.

Without a word it is the bundled one over the gym's simulated workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from openconductor.conductor import Planner
    from openconductor.pool import WorkerPool

BaseUrl = Annotated[str | None, typer.Option("--conductor-base-url", help="Where its API begins, /v1 included.")]
KeyEnv = Annotated[str | None, typer.Option("--conductor-key-env", help="The environment variable that holds its key.")]


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
    from openconductor.evaluation import planner

    return planner.find_planner(named, pool, base_url=base_url, key_env=key_env)
