"""What a server is told: where it listens, what it serves, and the keys with their limits.

In: values (``config.load_toml`` reads them). Out: a ``ServeConfig``, and a ConfigError where it
cannot be served. Defaults are the gym with the bundled Conductor on loopback, for anyone there,
which costs nothing.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field

from openconductor.baselines import BASELINES
from openconductor.calls.budget import RunBudget, check_price
from openconductor.calls.worker import Worker
from openconductor.config import one_of, registered
from openconductor.errors import ConfigError
from openconductor.evaluation.eval_config import CONDUCTOR, GYM, EvalConfig, read_spec
from openconductor.evaluation.systems import Workshop, learns
from openconductor.pool import WorkerPool
from openconductor.privacy import secrets_of_environment
from openconductor.serving.apis.wire import Reasoning
from openconductor.types import Budget

DIRECT = "direct:"
"""How the name of a model begins that is one worker alone."""
Names = Annotated[tuple[str, ...], Field(min_length=1)]
Positive = Annotated[int, Field(ge=1)]
Dollars = Annotated[Decimal, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]

_HASH = re.compile("sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class KeyTable:
    """One ``[[key]]``: who has it, and what it allows; None is no limit.

    Attributes:
        name: names the holder in the journal and in metrics.
        hash: ``sha256:`` and 64 hexadecimal digits (``openconductor serve --new-key`` makes it).
        models: those that may be asked.
        workers: the names of those that may be asked; the Conductor sees no other.
        dollars: what all requests of a period may cost together.
        period: ``day`` or ``month`` (of UTC), or ``total``; a month where only ``dollars`` is told.
        rpm: requests begun in any 60 seconds.
        concurrency: requests at once.
        max_dollars, max_seconds, max_calls, max_tokens, max_steps, max_rounds: of each request,
            whatever it says.
    """

    name: Annotated[str, Field(pattern=r"\S")]
    hash: str
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
        host, port: where it listens; an address beyond this machine needs keys.
        pool: a pool file, or ``gym``.
        conductor: ``provider:model``, a checkpoint folder, or ``worker:NAME`` of the pool; "" is
            the bundled one.
        max_steps: the most steps of a workflow; None is as many as the checkpoint was trained to
            write, else 5.
        max_rounds: the most rounds, where a request does not say; a key can limit it.
        fallback: whether a failed step goes to the next healthy worker.
        baselines: models beside the Conductor, as evaluations name them (``consensus:gpt-5?n=5``).
        journal: the file that keeps every call, and what each key has spent.
        content: ``none`` keeps texts out of the journal.
        reasoning: how much of the orchestration is shown where a request does not say.
        heartbeat_s: the longest silence of a stream.
        drain_s: how long requests under way may go on when the server is told to stop.
        origins: of web pages that may ask (CORS).
        body_mb: the largest body of a request.
        key: who may ask; none is anyone.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    pool: str = GYM
    conductor: str = ""
    max_steps: Positive | None = None
    max_rounds: Positive = 1
    fallback: bool = True
    baselines: tuple[str, ...] = ()
    journal: str = "serve.sqlite"
    content: Literal["full", "none"] = "full"
    reasoning: Reasoning = "summary"
    heartbeat_s: Seconds = 0.5
    drain_s: Annotated[float, Field(ge=0)] = 30.0
    origins: tuple[str, ...] = ()
    body_mb: Positive = 20
    key: tuple[KeyTable, ...] = ()


def model_names(config: ServeConfig, pool: WorkerPool) -> tuple[str, ...]:
    """The models on offer: the Conductor, the baselines, each worker alone."""
    baselines = (read_spec(text).name for text in config.baselines)
    return (CONDUCTOR, *baselines, *(f"{DIRECT}{worker.name}" for _, worker in pool))


def check_serve_config(
    config: ServeConfig, pool: WorkerPool, planner: Worker, *, where: str
) -> None:
    """Make sure that what is told can be served and paid for, before anything listens.

    Args:
        config: what is told.
        pool: the workers.
        planner: what writes the Conductor's workflows (``Conductor.planner``).
        where: the source in errors.

    Raises:
        ConfigError: an address beyond loopback without a key; two keys of one name or hash; a hash
            that is none; a model or a worker that there is not; a budget over a worker without a
            price; a period without a budget.
    """
    if not config.key and not _is_loopback(config.host):
        raise ConfigError(
            f"{where}: host: got {config.host!r} without a [[key]], so that anyone could spend; expected 127.0.0.1, or "
            "a key: `openconductor serve --new-key NAME` makes one"
        )
    for text in config.baselines:
        spec = read_spec(text)
        if ":" not in spec.kind:
            one_of(
                f"{where}: baselines", spec.kind, sorted({*BASELINES, *registered({}, "baseline")})
            )
        if learns(spec, EvalConfig(pool=config.pool)):
            raise ConfigError(
                f"{where}: baselines: {spec.name} learns from questions; expected one that needs none"
            )
        Workshop(EvalConfig(pool=config.pool), pool).check(spec)
    for name in ("name", "hash"):
        (value, count), *_ = Counter(getattr(key, name) for key in config.key).most_common(1) or [
            ("", 0)
        ]
        if count > 1:
            shown = f"{value!r} twice" if name == "name" else "one twice"
            raise ConfigError(f"{where}: key: {name}: got {shown}, expected each once")
    for key in config.key:
        if any(secret in key.name for secret in secrets_of_environment()):
            expected = "a name without the value of a variable that looks like a secret: the journal keeps none"
            raise ConfigError(f"{where}: key: name: got one (not shown), expected {expected}")
        _check_key(key, config, pool, planner, f"{where}: key {key.name!r}")


def _check_key(
    key: KeyTable, config: ServeConfig, pool: WorkerPool, planner: Worker, where: str
) -> None:
    if not _HASH.fullmatch(key.hash):  # not shown: it may be the key itself
        raise ConfigError(
            f"{where}: hash: got something else (not shown), expected sha256: and 64 hexadecimal digits, as "
            "`openconductor serve --new-key NAME` prints them"
        )
    if key.period is not None and key.dollars is None:
        raise ConfigError(f"{where}: period: got {key.period!r} without dollars, expected both")
    for model in key.models or ():
        one_of(f"{where}: models", model, model_names(config, pool))
    workers = {worker.name: worker for _, worker in pool}
    for name in key.workers or ():
        one_of(f"{where}: workers", name, workers)
    if key.dollars is None and key.max_dollars is None:
        return
    models, allowed = key.models or model_names(config, pool), key.workers or workers
    alone = all(model.startswith(DIRECT) for model in models)
    paid = [workers[name] for name in allowed if not alone or f"{DIRECT}{name}" in models]
    meter = RunBudget(Budget(dollars=Decimal(0)))
    for worker in (*paid, *([planner] if CONDUCTOR in models else [])):
        try:
            check_price(meter, worker)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
