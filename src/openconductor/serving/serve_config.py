"""The config of a server: its address, its models, and the keys with their limits.

The defaults serve the gym with the bundled Conductor on loopback, without a key, which costs
nothing.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from openconductor.baselines import BASELINES
from openconductor.calls.budget import RunBudget, check_price
from openconductor.config import one_of, registered
from openconductor.errors import ConfigError
from openconductor.evaluation.eval_config import GYM, EvalConfig, read_spec
from openconductor.evaluation.systems import System, Workshop, needs
from openconductor.pool import WorkerPool
from openconductor.privacy import secrets_of_environment
from openconductor.prompt import ExampleName, Template
from openconductor.protocols import Orchestrator
from openconductor.serving.apis.wire import Reasoning
from openconductor.serving.measured import planner_of
from openconductor.store import database_url
from openconductor.traces import TracesTable
from openconductor.types import Budget, OnNoPlan

DIRECT = "direct:"
"""Prefix of the model that is one worker alone."""
Names = Annotated[tuple[str, ...], Field(min_length=1)]
Positive = Annotated[int, Field(ge=1)]
Dollars = Annotated[Decimal, Field(ge=0)]
LogLevel = Literal["debug", "info", "warning", "error"]
Seconds = Annotated[float, Field(gt=0)]

_HASH = re.compile("sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class KeyTable:
    """One ``[[key]]``: its holder and its limits. None: no limit.

    Attributes:
        name: names the holder in the journal and in metrics.
        hash: ``sha256:`` and 64 hexadecimal digits (``openconductor serve --new-key`` makes it).
        admin: whether it may make and revoke keys over HTTP; only a key of the config can.
        models: the models that may be asked.
        workers: the names of the workers that may be asked; the Conductor sees no other.
        dollars: the most that all requests of a period may cost together.
        period: ``day`` or ``month`` (UTC), or ``total``; a month if only ``dollars`` is set.
        rpm: requests begun in any 60 seconds.
        concurrency: requests at once.
        max_dollars, max_seconds, max_calls, max_tokens, max_steps, max_rounds: limits of each
            request, whatever it asks for.
    """

    name: Annotated[str, Field(pattern=r"\S")]
    hash: str
    admin: bool = False
    models: Names | None = None
    workers: Names | None = None
    dollars: Dollars | None = None
    period: Literal["day", "month", "total"] | None = None
    rpm: Positive | None = None
    concurrency: Positive | None = None
    max_dollars: Dollars | None = None
    max_seconds: Seconds | None = None
    max_calls: Positive | None = None
    max_tokens: Positive | None = None
    max_steps: Positive | None = None
    max_rounds: Positive | None = None


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """One server.

    Attributes:
        host, port: the address. One beyond this machine requires keys.
        run: the folder of an evaluation. Its systems are the models, and so is ``auto``; its recipe
            names the pool and the Conductor. "": none.
        pool: a pool file, or ``gym``. With ``run`` it is the recipe's, unless it is named here.
        conductor: ``provider:model``, a checkpoint folder, or ``worker:NAME`` of the pool; "": the
            bundled one.
        force: whether a trained Conductor takes workers that it was not trained with.
        max_steps: the most steps of a workflow. None: as many as the checkpoint was trained to
            write, else 5.
        max_rounds: the most rounds, unless a request says; a key can limit it.
        fallback: whether a failed step goes to the best of the other healthy workers.
        cards: whether a prompted Conductor is shown what is known of the workers. None: with
            ``brief``.
        examples: the worked examples that it is shown. None: those of its template.
        template: its instructions. None: ``brief``.
        on_no_plan: where there is no valid plan, the pool's default worker answers, or the request
            fails.
        plan_timeout_s: how long one call of a planner behind a network may take. None: 120 seconds,
            or what the pool file says of the worker that plans.
        direct_below_tokens: shorter conversations go to the default worker without a plan.
        baselines: models beside the Conductor, as evaluations name them (``consensus:gpt-5?n=5``).
        processes: the servers that listen at the address, each also at a port of its own: the next
            after ``port``. They require a journal in PostgreSQL. None: this process serves.
        journal: the file, or the URL of the PostgreSQL database (``postgresql://…``), that keeps
            every call, and the spending of each key.
        content: ``none`` keeps texts out of the journal.
        keep_days: episodes that began longer ago are removed from the journal; what each key was
            charged stays. None: nothing is removed.
        reasoning: how much of the orchestration is shown, unless a request says.
        heartbeat_s: the longest silence of a stream, in seconds.
        drain_s: how long running requests may go on when the server is told to stop, in seconds.
        log_level: how much is logged on stderr; a line a request at ``info``.
        origins: web pages whose scripts may send requests (CORS).
        body_mb: the largest body of a request, in million bytes.
        ui: whether there is a page at ``/ui`` that shows the episodes, to each key its own. It
            requires that one process serves.
        allow_asking: whether who looks at the page of a server without keys may ask there, too.
        traces: spans are sent by OpenTelemetry. None: none are.
        key: who may ask; without one anybody may.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    run: str = ""
    pool: str = GYM
    conductor: str = ""
    force: bool = False
    max_steps: Positive | None = None
    max_rounds: Positive = 1
    fallback: bool = True
    cards: bool | None = None
    examples: ExampleName | None = None
    template: Template | None = None
    on_no_plan: OnNoPlan = "default_worker"
    plan_timeout_s: Seconds | None = None
    direct_below_tokens: Positive | None = None
    baselines: tuple[str, ...] = ()
    processes: Positive | None = None
    journal: str = "serve.sqlite"
    content: Literal["full", "none"] = "full"
    keep_days: Annotated[float, Field(ge=1)] | None = None
    reasoning: Reasoning = "summary"
    heartbeat_s: Seconds = 0.5
    drain_s: Annotated[float, Field(ge=0)] = 30.0
    log_level: LogLevel = "info"
    origins: tuple[str, ...] = ()
    body_mb: Positive = 20
    ui: bool = False
    allow_asking: bool = False
    traces: TracesTable | None = None
    key: tuple[KeyTable, ...] = ()


def direct_names(pool: WorkerPool) -> dict[int, str]:
    """Return the models that are one worker alone, by the worker's ordinal."""
    return {ordinal: f"{DIRECT}{name}" for ordinal, name in pool.names.items()}


def check_serve_config(
    config: ServeConfig, pool: WorkerPool, systems: Mapping[str, Orchestrator], *, where: str
) -> None:
    """Check that a config can be served and paid for, before anything listens.

    Args:
        config: the config.
        pool: the workers.
        systems: answer as models beside them, by name.
        where: the source in errors.

    Raises:
        ConfigError: the address is not loopback and there is no key; two keys share a name or hash;
            a hash is invalid; a model or a worker is unknown; a worker without a price has a
            dollar budget; a period has no budget.
    """
    for _, check in serve_checks(config, pool, systems, where=where):
        check()


def serve_checks(
    config: ServeConfig, pool: WorkerPool, systems: Mapping[str, Orchestrator], *, where: str
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the checks of ``check_serve_config``, which has the arguments, each with a name."""
    yield "address", partial(_check_host, config, where)
    yield "processes", partial(check_processes, config, where)
    yield "keys", partial(_check_holders, config, where)
    yield "page", partial(_check_asking, config, where)
    for key in config.key:
        name = f"key {key.name!r}"
        yield name, partial(check_key, key, pool, systems, f"{where}: {name}")


def _check_host(config: ServeConfig, where: str) -> None:
    """Check the address; one beyond this machine requires keys."""
    if "/" in config.host:
        raise ConfigError(
            f"{where}: host: got {config.host!r}, expected it without http:// and path"
        )
    if not config.key and not is_loopback(config.host):
        raise ConfigError(
            f"{where}: host: got {config.host!r} without a [[key]], so that anyone could spend; "
            "use 127.0.0.1, or make a key with `openconductor serve --new-key NAME`"
        )


def check_processes(config: ServeConfig, where: str) -> None:
    """Check that several processes can share the journal, and have no page.

    Raises:
        ConfigError: the journal is a file, which has one writer; or there is a page, whose sessions
            one process alone would know.
    """
    if config.ui and (config.processes or 1) > 1:
        raise ConfigError(
            f"{where}: ui: got true with {config.processes} processes, of which only one would "
            "know a visitor's session; leave ui (--ui) out and look with `openconductor view "
            "postgresql://USER@HOST/DATABASE`, or leave processes out"
        )
    if config.processes is not None and database_url(config.journal) is None:
        raise ConfigError(
            f"{where}: processes: got {config.processes} with the journal {config.journal!r}, a "
            "file, which one process writes; name a PostgreSQL database (--journal "
            "postgresql://USER@HOST/DATABASE; `openconductor store copy` moves a file there), or "
            "leave processes out"
        )


def _check_holders(config: ServeConfig, where: str) -> None:
    """Check that keys differ, and that no name is a secret."""
    names = [key.name for key in config.key]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise ConfigError(f"{where}: key: name: got {repeated!r} twice, expected each once")
    if len({key.hash for key in config.key}) < len(config.key):
        raise ConfigError(f"{where}: key: hash: got one twice, expected each once")
    secrets = secrets_of_environment()
    if any(secret in name for secret in secrets for name in names):
        raise ConfigError(
            f"{where}: key: name: one (not shown) contains the value of an environment "
            "variable that looks like a secret, which the journal would not keep"
        )


def _check_asking(config: ServeConfig, where: str) -> None:
    if config.allow_asking and not config.ui:
        raise ConfigError(f"{where}: allow_asking requires ui = true (--ui)")
    if config.allow_asking and config.key:
        raise ConfigError(
            f"{where}: allow_asking is for servers without keys; with keys each holder may ask on "
            "the page, within the limits of the key"
        )


def make_baseline(text: str, config: ServeConfig, pool: WorkerPool, where: str) -> System:
    """Make one of the baselines of a config.

    Raises:
        ConfigError: it is unknown, cannot be made, or learns from questions.
    """
    where = f"{where}: baselines"
    evaluation = EvalConfig(pool=config.pool)
    workshop = Workshop(evaluation, pool)
    spec = read_spec(text)
    if ":" not in spec.kind:
        one_of(where, spec.kind, sorted({*BASELINES, *registered({}, "baseline")}))
    if needs(spec, evaluation):
        raise ConfigError(
            f"{where}: {spec.name} learns from questions, which serving does not have; evaluate "
            "it, and serve what it learnt: --from RUN"
        )
    workshop.check(spec)
    return workshop.make(spec)


def check_key(
    key: KeyTable, pool: WorkerPool, systems: Mapping[str, Orchestrator], where: str
) -> None:
    """Check that a server has what a key may ask, and that its calls can be paid for.

    Raises:
        ConfigError: the hash is invalid; a model or a worker is unknown; a worker without a price
            has a dollar budget; a period has no budget.
    """
    if not _HASH.fullmatch(key.hash):  # not shown: it may be the key itself
        raise ConfigError(
            f"{where}: hash: got something else (not shown), expected sha256: and 64 hexadecimal "
            "digits, as `openconductor serve --new-key NAME` prints them"
        )
    if key.period is not None and key.dollars is None:
        raise ConfigError(f"{where}: period {key.period!r} requires dollars")
    models: Iterable[str] = (*systems, *direct_names(pool).values())
    for model in key.models or ():
        one_of(f"{where}: models", model, models)
    workers = {worker.name: worker for _, worker in pool}
    for name in key.workers or ():
        one_of(f"{where}: workers", name, workers)
    if key.dollars is None and key.max_dollars is None:
        return
    if key.models is not None:
        models = key.models
    names: Iterable[str] = key.workers or workers
    if all(model.startswith(DIRECT) for model in models):
        names = [name for name in names if f"{DIRECT}{name}" in models]
    paid = [workers[name] for name in names]
    for model in models:
        planner = planner_of(systems[model]) if model in systems else None
        if planner is not None:
            paid.append(planner)
    budget = RunBudget(Budget(dollars=Decimal(0)))
    for worker in paid:
        try:
            check_price(budget, worker)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach an address."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
