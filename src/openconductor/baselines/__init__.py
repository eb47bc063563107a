"""Baselines: other ways to answer with a pool, measured beside the Conductor.

``BASELINES`` names them lazily as ``module:attribute``; each attribute makes an ``Orchestrator``
(its first argument is the pool), so whatever can be evaluated takes a baseline as it takes the
Conductor. A worker that is an option is given by its name or its ordinal. Packages outside this one
add theirs with the entry-point group ``openconductor.baselines``, or are named as
``module:attribute``.

``rewired.ablated``, which makes an ablation of a Conductor, is not in it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from openconductor.config import check_option, load_registered, needing, shorten
from openconductor.errors import ConfigError

if TYPE_CHECKING:
    from openconductor.pool import WorkerPool
    from openconductor.protocols import Orchestrator

BASELINES: dict[str, str] = {
    "best_fixed": "openconductor.baselines.planned:BestFixed",
    "cascade": "openconductor.baselines.cascade:Cascade",
    "consensus": "openconductor.baselines.consensus:Consensus",
    "context": "openconductor.baselines.single:LongContext",
    "early_vote": "openconductor.baselines.cascade:EarlyVote",
    "explorer": "openconductor.baselines.collaboration:Explorer",
    "heuristic": "openconductor.baselines.planned:Heuristic",
    "masrouter-lite": "openconductor.baselines.routers:MASRouter",
    "moa": "openconductor.baselines.consensus:MixtureOfAgents",
    "planned": "openconductor.baselines.planned:PlannedOrchestrator",
    "random": "openconductor.baselines.planned:RandomWorkflows",
    "reflection": "openconductor.baselines.single:Reflection",
    "routerdc-lite": "openconductor.baselines.routers:RouterDC",
    "single": "openconductor.baselines.single:SingleWorker",
    "smoothie-lite": "openconductor.baselines.smoothie:Smoothie",
}


def make_baseline(name: str, pool: WorkerPool, **options: object) -> Orchestrator:
    """Make a baseline by its name.

    Args:
        name: one of ``BASELINES``, an entry point, or ``module:attribute``.
        pool: the workers.
        options: what the baseline takes beside the pool (``baseline_options`` lists it).

    Raises:
        ConfigError: a baseline or an option is unknown (the message names the nearest), an option
            is missing or out of its range, the extra that the baseline needs is not installed, or
            the object that was made has no ``ask``.
    """
    where = f"baseline {name!r}"
    known = baseline_options(name)
    for option in options:
        check_option(option, known, where)
    required = [name for name, parameter in known.items() if parameter.default is parameter.empty]
    missing = [name for name in required if name not in options]
    if missing:
        raise ConfigError(f"{where}: missing {', '.join(missing)}; expected a value")
    with needing(where, "baselines"):
        baseline = _factory(name)(pool, **options)
    if not hasattr(baseline, "ask"):
        raise ConfigError(f"{where}: made {shorten(baseline)}, expected an object with `ask`")
    return baseline


def baseline_options(name: str) -> Mapping[str, inspect.Parameter]:
    """Return the options of a baseline by name, without the pool.

    Raises:
        ConfigError: the baseline is unknown, or the extra that it needs is not installed.

    >>> list(baseline_options("consensus"))
    ['worker', 'n', 'key']
    """
    factory = _factory(name)
    parameters = list(inspect.signature(factory).parameters.items()) if callable(factory) else []
    if not parameters:
        raise ConfigError(
            f"baseline {name!r}: got {shorten(factory)}, expected a class or function of a pool"
        )
    return dict(parameters[1:])


def baseline_needs(name: str) -> tuple[type, ...]:
    """Return the kinds of lessons that a baseline learns from: its attribute ``needs``.

    It is ``Observations``, ``Trial``, a tuple of both, or missing.

    Raises:
        ConfigError: the baseline is unknown, or the extra that it needs is not installed.
    """
    needs: type | tuple[type, ...] = getattr(_factory(name), "needs", ())
    return (needs,) if isinstance(needs, type) else needs


def _factory(name: str) -> Callable[..., Orchestrator]:
    with needing(f"baseline {name!r}", "baselines"):
        factory = load_registered(BASELINES, name, what="baseline")
    return cast("Callable[..., Orchestrator]", factory)
