"""How systems are named: ``kind``, ``kind:name``, ``kind:name?option=value&…``.

In: texts, as a command line or a recipe has them. Out: Specs, each with the one name that tables give it.

``conductor`` and its ablations (``conductor?subtasks=false``) · ``planner:PROVIDER:MODEL`` (a prompted model as the
Conductor) · ``worker:NAME`` · ``workers`` (every worker alone) · baselines (``consensus:NAME?n=5``, ``moa:NAME``,
``random``, ``best_fixed`` …) · ``oracle_observed`` (hindsight) · ``oracle`` (in the gym).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from openconductor.baselines import BASELINES
from openconductor.config import nearest
from openconductor.errors import ConfigError

CONDUCTOR = "conductor"
PLANNER = "planner"
WORKER = "worker"
WORKERS = "workers"
ORACLE = "oracle"
HINDSIGHT = "oracle_observed"
_OURS = (CONDUCTOR, PLANNER, WORKER, WORKERS, ORACLE, HINDSIGHT)
_HIDDEN = ("planned", "single", "explorer")  # made from Python, not from a name
KINDS = (*_OURS, *(name for name in BASELINES if name not in _HIDDEN))
"""What a spec may begin with."""

_OPTIONS = re.compile(r"\?(?=[a-z_]+=)")

Value = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Spec:
    """One system, as it is named.

    Attributes:
        kind: one of ``KINDS``.
        argument: what stands behind the first colon; "" where there is none.
        options: by name, in order of their names.
    """

    kind: str
    argument: str = ""
    options: tuple[tuple[str, Value], ...] = ()

    @property
    def name(self) -> str:
        """The spec in its one form: what tables call the system."""
        head = f"{self.kind}:{self.argument}" if self.argument else self.kind
        return head + (
            "?" + "&".join(f"{name}={_written(value)}" for name, value in self.options) if self.options else ""
        )


def read_spec(text: str) -> Spec:
    """Read one spec.

    Raises:
        ConfigError: it is none; the message names the nearest kind.

    >>> read_spec(" consensus:gpt-5?n=5 ").name, read_spec("conductor?subtasks=False&access=index").name
    ('consensus:gpt-5?n=5', 'conductor?access=index&subtasks=false')
    """
    head, *tail = _OPTIONS.split(text.strip(), maxsplit=1)
    kind, colon, argument = head.partition(":")
    kind, argument = kind.strip(), argument.strip()
    if kind not in KINDS:
        known = ", ".join(KINDS)
        raise ConfigError(
            f"system {text.strip()!r}: no {kind!r}, expected one of {known}; nearest: {nearest(kind, KINDS)!r}"
        )
    if colon and not argument:
        raise ConfigError(f"system {text.strip()!r}: nothing behind the colon; expected a name")
    options: dict[str, Value] = {}
    for pair in tail[0].split("&") if tail else ():
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not (name and equals and value) or name in options:
            raise ConfigError(f"system {text.strip()!r}: got {pair!r}, expected option=value, each option once")
        options[name] = _value(value)
    return Spec(kind, argument, tuple(sorted(options.items())))


def expand(texts: Sequence[str], workers: Iterable[str]) -> list[Spec]:
    """Read all specs; ``workers`` becomes one for each worker, in order.

    Raises:
        ConfigError: one is none, or two are the same.
    """
    names = list(workers)
    specs: list[Spec] = []
    for text in texts:
        spec = read_spec(text)
        if spec.kind == WORKERS:
            if spec.argument or spec.options:
                raise ConfigError(f"system {text!r}: got more than {WORKERS!r}, which stands for every worker alone")
            specs += [Spec(WORKER, name) for name in names if Spec(WORKER, name) not in specs]
        elif spec in specs:
            raise ConfigError(f"system {text!r}: named twice, expected each once")
        else:
            specs.append(spec)
    return specs


def refuse_unknown(spec: Spec, known: Iterable[str]) -> None:
    """Make sure that a spec has none but known options.

    Raises:
        ConfigError: it has another one; the message names the nearest.
    """
    taken = list(known)
    for name, _ in spec.options:
        if name not in taken:
            near = f"; nearest: {nearest(name, taken)!r}" if taken else ""
            raise ConfigError(
                f"system {spec.name!r}: no option {name!r}, expected one of {', '.join(taken) or 'none'}{near}"
            )


def options_of(spec: Spec) -> Mapping[str, Value]:
    """The options by name."""
    return dict(spec.options)


def _value(text: str) -> Value:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if re.fullmatch(r"-?[0-9]+", text):
        return int(text)
    return float(text) if re.fullmatch(r"-?[0-9]+\.[0-9]+", text) else text


def _written(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
