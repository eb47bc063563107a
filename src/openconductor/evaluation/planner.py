"""Which Conductor writes the workflows. In: what a command line or a recipe says. Out: a planner, or a ConfigError."""

from __future__ import annotations

from collections.abc import Iterable

from openconductor.conductor import Planner
from openconductor.errors import ConfigError
from openconductor.evaluation.config import GYM, EvalConfig
from openconductor.evaluation.specs import CONDUCTOR, PLANNER, Spec
from openconductor.gym.bundled import bundled_folder
from openconductor.pool import WorkerPool
from openconductor.protocols import Provider
from openconductor.providers import create, resolve
from openconductor.worker import Worker

OF_POOL = "worker"
"""``worker:NAME`` is the pool's worker of that name."""


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
        return str(bundled_folder())
    kind, colon, name = named.partition(":")
    if kind == OF_POOL and colon:
        if options:
            raise ConfigError(f"--conductor {named}: takes its URL and key from the pool file, got them as options too")
        return pool[pool.ordinal_of(name)]
    if not options:
        return named
    if not (colon and kind and name):
        raise ConfigError(f"--conductor {named!r}: got a URL or a key for it, expected 'provider:model'")
    return create(kind, name, **options)


class Planners:
    """The planners of one evaluation, and the pool that they plan for; each is loaded once for all of its ablations.

    Args:
        config: the recipe.
        pool: the workers, in its setting.
    """

    def __init__(self, config: EvalConfig, pool: WorkerPool) -> None:
        self.pool = pool
        self._config = config
        self._loaded: dict[str, Provider | Worker] = {}

    def of(self, spec: Spec) -> Provider | Worker:
        """The planner of a system ``conductor…`` or ``planner:…``.

        Raises:
            ConfigError: there is no such planner.
        """
        key = spec.argument if spec.kind == PLANNER else ""
        if key not in self._loaded:
            found = self._prompted(spec) if spec.kind == PLANNER else self._trained(spec)
            self._loaded[key] = found if isinstance(found, Worker) else resolve(found)
        return self._loaded[key]

    def described(self, specs: Iterable[Spec]) -> dict[str, str]:
        """What stands behind each planner, by its name."""
        planned = {spec.argument or CONDUCTOR: self.of(spec) for spec in specs if spec.kind in (CONDUCTOR, PLANNER)}
        return {name: str(getattr(planner, "identity", "")) for name, planner in planned.items()}

    async def aclose(self) -> None:
        """Close the connections of workers and planners on the running event loop."""
        await self.pool.aclose()
        for planner in self._loaded.values():
            close = getattr(planner.provider if isinstance(planner, Worker) else planner, "aclose", None)
            if close is not None:
                await close()

    def _prompted(self, spec: Spec) -> Planner:
        if not spec.argument:
            raise ConfigError(f"system {spec.name!r}: no model, expected planner:PROVIDER:MODEL")
        return find_planner(spec.argument, self.pool)

    def _trained(self, spec: Spec) -> Planner:
        table = self._config.conductor
        if spec.argument:
            raise ConfigError(f"system {spec.name!r}: got {spec.argument!r}; expected 'conductor' and options")
        if not table.planner and self._config.pool != GYM:
            raise ConfigError(
                "conductor: the bundled one knows only the gym, got a pool file; expected --conductor provider:model, "
                "a checkpoint folder, or worker:NAME of the pool"
            )
        return find_planner(table.planner or None, self.pool, base_url=table.base_url, key_env=table.api_key_env)
