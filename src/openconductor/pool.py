"""Pools: workers with their ordinals, pool files, and simulated pools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, Self, cast

from openconductor.calls.cards import Calibration, Calibrations
from openconductor.calls.worker import Worker
from openconductor.config import load_registered, load_toml, nearest, shorten
from openconductor.errors import ConfigError, Unreachable, WorkerError
from openconductor.protocols import Provider
from openconductor.providers import create, takes
from openconductor.types import Price, Sampling, TrainedWorker

if TYPE_CHECKING:
    from openconductor.store import CompletionStore


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class WorkerPool:
    """Workers by ordinal, which is all that the Conductor sees of them. Immutable.

    Iteration gives (ordinal, Worker), in order. A subset keeps the ordinals. ``pool[0]`` and
    ``pool["name"]`` are its workers.

    Attributes:
        names: the workers' names, by ordinal.
        default_worker: the ordinal of the worker that answers alone where there is no plan.
    """

    _workers: Mapping[int, Worker]
    names: Mapping[int, str]
    default_worker: int

    def __init__(
        self,
        workers: Sequence[Worker] | Mapping[int, Worker],
        *,
        default_worker: str | None = None,
    ) -> None:
        """Number the workers from 0, or by the ordinals of a mapping.

        Args:
            workers: the workers.
            default_worker: the name of the default worker; None: the one that calibration found
                best, else the first.

        Raises:
            ConfigError: there is no worker, two of one name, or none of the default's name.
        """
        if isinstance(cast(object, workers), Worker):
            raise ConfigError("pool: got a Worker, expected a list of Workers")
        numbered = dict(workers if isinstance(workers, Mapping) else enumerate(workers))
        if not numbered:
            raise ConfigError("pool: no worker, expected at least one")
        names: dict[int, str] = {}
        for ordinal, worker in numbered.items():
            if not isinstance(cast(object, worker), Worker):
                message = f"pool: entry {ordinal} is {shorten(worker)}, expected a Worker, such as "
                raise ConfigError(message + 'oc.Worker(function, name="…")')
            if worker.name in names.values():
                message = f"pool: two workers of the name {worker.name!r}, expected different names"
                raise ConfigError(message)
            names[ordinal] = worker.name
        object.__setattr__(self, "_workers", MappingProxyType(numbered))
        object.__setattr__(self, "names", MappingProxyType(names))
        if default_worker is None:
            default = self.best_first(numbered)[0]
        else:
            default = self.ordinal_of(default_worker)
        object.__setattr__(self, "default_worker", default)

    @classmethod
    def from_toml(
        cls,
        path: str | Path,
        overrides: Sequence[str] = (),
        *,
        calibrations: Calibrations | None = None,
    ) -> Self:
        """Read a pool file: an array of tables ``[[worker]]``, in the order of the ordinals.

        Args:
            path: the file.
            overrides: ``key=value`` each.
            calibrations: stand in place of those of the file; None: the file's.

        Raises:
            ConfigError: the file is wrong; the message names the file and the worker, and the
                nearest known key.
        """
        file = read_pool_file(path, overrides)
        measured = file.calibration if calibrations is None else calibrations
        # Models of this process are loaded last: a fault of another worker is found in no time.
        entries = sorted(
            enumerate(file.worker), key=lambda item: item[1].provider == "transformers"
        )
        workers: dict[int, Worker] = {}
        try:
            for ordinal, entry in entries:
                workers[ordinal] = entry.build(measured.get(entry.name, {}))
            return cls(dict(sorted(workers.items())), default_worker=file.default_worker)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error

    @property
    def ordinals(self) -> tuple[int, ...]:
        """The workers' ordinals, ascending."""
        return tuple(self._workers)

    @property
    def calibrations(self) -> dict[str, Mapping[str, Calibration]]:
        """The measurements of the workers that were measured, by name."""
        return {worker.name: worker.calibrations for _, worker in self if worker.calibrations}

    @property
    def cards(self) -> dict[int, str]:
        """The workers' cards, by ordinal."""
        return {ordinal: worker.card for ordinal, worker in self}

    @property
    def full_cards(self) -> dict[int, str]:
        """All that is known of each worker beside its name, by ordinal."""
        return {ordinal: worker.full_card for ordinal, worker in self}

    def subset(self, ordinals: Sequence[int]) -> WorkerPool:
        """Return the pool of some of the workers, each under its ordinal.

        Raises:
            ConfigError: no ordinal is given, one is given twice, or is not in the pool.
        """
        if len(set(ordinals)) != len(ordinals):
            raise ConfigError(f"subset {list(ordinals)}: an ordinal twice, expected each once")
        default = self.names[self.default_worker] if self.default_worker in ordinals else None
        workers = {ordinal: self[ordinal] for ordinal in sorted(ordinals)}
        return WorkerPool(workers, default_worker=default)

    def numbered(self, ordinals: Mapping[str, int]) -> WorkerPool:
        """Return the pool with its workers under these ordinals, by name.

        Workers that are not named get the next free ordinals.
        """
        taken = list(ordinals.values())
        numbered: dict[int, Worker] = {}
        for _, worker in self:
            ordinal = ordinals.get(worker.name)
            if ordinal is None:
                ordinal = max(taken, default=-1) + 1
                taken.append(ordinal)
            numbered[ordinal] = worker
        if numbered == self._workers:
            return self
        default = self.names[self.default_worker]
        return WorkerPool(dict(sorted(numbered.items())), default_worker=default)

    def as_trained(self, trained: Sequence[TrainedWorker]) -> WorkerPool:
        """Return the pool with the ordinals that a Conductor was trained with.

        Raises:
            ConfigError: a worker is unknown to the Conductor, or has another model. The message
                says what differs, and how to go on.
        """
        differences = self.differences(trained)
        if differences:
            names = ", ".join(repr(worker.name) for worker in trained)
            raise ConfigError(
                f"pool: the Conductor was trained with other workers: {'; '.join(differences)}. "
                f"Expected only workers of {names}, with the same models. --force (in Python and "
                "configs force=true) takes the workers by their numbers as they are; a training "
                "with this pool makes a Conductor for it"
            )
        return self.numbered({worker.name: worker.ordinal for worker in trained})

    def differences(self, before: Sequence[TrainedWorker]) -> list[str]:
        """Say which workers are not among those of before, or have another model now."""
        known = {worker.name: worker for worker in before}
        differences: list[str] = []
        for _, worker in self:
            model = worker.resolved.model
            earlier = known.get(worker.name)
            if earlier is None:
                differences.append(f"{worker.name!r} is unknown to it")
            elif earlier.model and model and earlier.model != model:
                differences.append(f"{worker.name!r} was {earlier.model!r} and is {model!r}")
        return differences

    def replaying(self, journal: CompletionStore) -> WorkerPool:
        """Return the pool with each worker answering from a journal (``Worker.replaying``)."""
        workers = {ordinal: worker.replaying(journal) for ordinal, worker in self}
        return WorkerPool(workers, default_worker=self.names[self.default_worker])

    def ordinal_of(self, name: str) -> int:
        """Return the ordinal of the worker of this name.

        Raises:
            ConfigError: there is none; names the nearest.
        """
        for ordinal, known in self.names.items():
            if known == name:
                return ordinal
        near = nearest(name, self.names.values())
        raise ConfigError(f"worker {name!r} is not in the pool; the nearest is {near!r}")

    def best_first(self, ordinals: Iterable[int]) -> list[int]:
        """Sort workers by their mean measured rates; those that were not measured come last.

        Rates are compared on the tasks that all measured workers of the pool share, or else each
        worker's own. Equal workers keep their order.
        """
        measured = {ordinal: worker.rates for ordinal, worker in self if worker.rates}
        if not measured:
            return list(ordinals)
        shared = set(next(iter(measured.values())))
        for rates in measured.values():
            shared &= rates.keys()
        means: dict[int, float] = {}
        for ordinal, rates in measured.items():
            means[ordinal] = fmean(rates[task] for task in shared or rates)
        return sorted(ordinals, key=lambda ordinal: means.get(ordinal, -1.0), reverse=True)

    async def aclose(self) -> None:
        """Close the connections that the workers' providers hold on the running event loop."""
        for _, worker in self:
            await worker.resolved.aclose()

    def __getitem__(self, key: int | str) -> Worker:
        ordinal = self.ordinal_of(key) if isinstance(key, str) else key
        if ordinal not in self:
            known = list(self.ordinals)
            raise ConfigError(f"worker {ordinal!r} is not in the pool; expected one of {known}")
        return self._workers[ordinal]

    def __contains__(self, ordinal: object) -> bool:
        return type(ordinal) is int and ordinal in self._workers

    def __iter__(self) -> Iterator[tuple[int, Worker]]:
        return iter(self._workers.items())

    def __len__(self) -> int:
        return len(self._workers)

    def __repr__(self) -> str:
        workers = [f"{ordinal}: {name}" for ordinal, name in self.names.items()]
        return f"WorkerPool({', '.join(workers)})"


async def reach(servers: Iterable[Worker | Provider]) -> None:
    """Connect to the servers of workers and providers side by side, before anything is asked.

    Raises:
        Unreachable: names each that could not be reached.
    """

    async def fail_to_reach(server: Worker | Provider) -> WorkerError | None:
        try:
            await server.reach()
        except WorkerError as error:
            return error
        return None

    errors = await asyncio.gather(*(fail_to_reach(server) for server in servers))
    names_of: dict[str, list[str]] = {}
    for error in errors:
        if error is not None:
            name = f"worker {error.worker!r}" if error.worker else "the planner"
            names_of.setdefault(error.message, []).append(name)
    if names_of:
        failures = [f"{', '.join(names)}: {message}" for message, names in names_of.items()]
        raise Unreachable(f"{'; '.join(failures)}; nothing was asked")


# ── simulated workers ─────────────────────────────────────────────────────────────────────────────
POOLS: dict[str, str] = {"gym": "openconductor.gym.workers:read_pool"}
"""Pools that need no file, by the name before the colon; each is a function of the whole name."""


class SimulatedPool(Protocol):
    """Workers that are simulated: they cost nothing and answer a repeated call alike."""

    @property
    def redrawn(self) -> bool:
        """True if each question gets workers of its own."""
        ...

    @property
    def conductor(self) -> Path:
        """The folder of the Conductor that was trained for these workers."""
        ...

    def draw(self, seed: int = 0, key: str = "") -> WorkerPool:
        """Return the workers; ``key`` draws those of one question, where they are redrawn."""
        ...


@lru_cache(maxsize=64)
def simulated_pool(name: str) -> SimulatedPool | None:
    """Return the simulated pool of a name such as ``gym:7``; None: it is the path of a pool file.

    Raises:
        ConfigError: the pool has no such variant.
    """
    kind = name.partition(":")[0]
    if kind not in POOLS:
        return None
    read = cast("Callable[[str], SimulatedPool]", load_registered(POOLS, kind, what="pool"))
    return read(name)


def open_pool(name: str, seed: int = 0, *, calibrations: Calibrations | None = None) -> WorkerPool:
    """Return the workers of a simulated pool or of a pool file; ``seed`` draws simulated answers.

    Raises:
        ConfigError: there is no such pool, or the file is wrong.
    """
    simulated = simulated_pool(name)
    if simulated is not None:
        return simulated.draw(seed)
    return WorkerPool.from_toml(name, calibrations=calibrations)


def read_calibrations(name: str) -> Calibrations:
    """Return the measurements of its workers in a pool file, by name; of simulated ones: none.

    Raises:
        ConfigError: the file is wrong.
    """
    if simulated_pool(name) is not None:
        return {}
    file = read_pool_file(name)
    names = [table.name for table in file.worker if table.name in file.calibration]
    return {name: file.calibration[name] for name in names}


_PROVIDER_KEYS = (
    "base_url",
    "api_key_env",
    "command",
    "url",
    "env",
    "argument",
    "send",
    "device",
    "dtype",
    "headers",
    "query",
    "proxy",
    "client_cert",
)
_WORKER_KEYS = (
    "name",
    "description",
    "tags",
    "max_concurrency",
    "rpm",
    "tpm",
    "price",
    "timeout_s",
    "read_timeout_s",
    "retries",
)


# ── the pool file ─────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class WorkerTable:
    """One ``[[worker]]`` of a pool file; ``body`` is sent as it is (reasoning effort, say).

    ``base_url`` and ``api_key_env`` are for models behind HTTP; ``command``, ``url``, ``env``,
    ``argument`` and ``send`` for the tools of an MCP server; ``headers``, ``query``, ``proxy`` and
    ``client_cert`` for both, with ``$NAME`` for an environment variable; ``device`` and ``dtype``
    for models that run here. ``[worker.options]`` holds further keyword arguments of the provider.
    A key or option that the provider does not take is a ConfigError.
    """

    name: str
    model: str
    provider: str = "openai_compatible"
    base_url: str | None = None
    api_key_env: str | None = None
    description: str = ""
    tags: tuple[str, ...] = ()
    max_concurrency: int | None = None
    rpm: int | None = None
    tpm: int | None = None
    price: Price | None = None
    sampling: Sampling = field(default_factory=Sampling)
    body: dict[str, object] = field(default_factory=dict[str, object])
    timeout_s: float | None = None
    read_timeout_s: float | None = None
    retries: int | None = None
    command: tuple[str, ...] | None = None
    url: str | None = None
    env: tuple[str, ...] | None = None
    argument: str | None = None
    send: str | None = None
    device: str | None = None
    dtype: str | None = None
    headers: dict[str, str] | None = None
    query: dict[str, str] | None = None
    proxy: str | None = None
    client_cert: str | tuple[str, ...] | None = None
    options: dict[str, object] = field(default_factory=dict[str, object])

    def build(self, calibrations: Mapping[str, Calibration] | None = None) -> Worker:
        """Make the worker, with what was measured of it.

        Raises:
            ConfigError: a value is wrong; the message begins with the worker's name.
        """
        keys = list(_PROVIDER_KEYS)
        try:
            keys += [key for key in ("timeout_s", "read_timeout_s") if takes(self.provider, key)]
            given = {key: getattr(self, key) for key in keys if getattr(self, key) is not None}
            for option in self.options:
                if option in given:
                    raise ConfigError(f"{option} is set twice, also in [worker.options]")
            provider = create(self.provider, self.model, **given, **self.options)
        except ConfigError as error:
            raise ConfigError(f"worker {self.name!r}: {error}") from error
        body = MappingProxyType({**self.sampling.body, **self.body})
        return Worker(
            provider,
            sampling=replace(self.sampling, body=body),
            calibrations=calibrations or {},
            **{key: getattr(self, key) for key in _WORKER_KEYS},
        )


@dataclass(frozen=True, slots=True)
class PoolFile:
    """A pool file as it stands.

    Attributes:
        worker: the workers, in the order of their ordinals.
        default_worker: the name of the worker that answers without a plan.
        calibration: by worker and task, what ``openconductor pool calibrate`` measured.
    """

    worker: tuple[WorkerTable, ...]
    default_worker: str | None = None
    calibration: dict[str, dict[str, Calibration]] = field(
        default_factory=dict[str, dict[str, Calibration]]
    )


def read_pool_file(path: str | Path, overrides: Sequence[str] = ()) -> PoolFile:
    """Read a pool file, of which no worker is made.

    Raises:
        ConfigError: there is no such file, or it is wrong.
    """
    try:
        return load_toml(path, PoolFile, overrides)
    except ConfigError as error:
        if Path(path).exists():
            raise
        raise ConfigError(
            f"{error}; if a recipe names it, the first lines of the recipe say what makes it; else "
            f"draft one: `openconductor pool init {path}`"
        ) from error
