"""What the systems cost, and how the evaluation was made: its recipe, seed, versions and data.

In: Results, and what the run's folder says about where it was made. Out: elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast
from xml.etree.ElementTree import Element

from openconductor.evaluation.config import dump_eval_config
from openconductor.evaluation.latency import latency
from openconductor.evaluation.results import Results
from openconductor.evaluation.table import Row, make_table
from openconductor.reporting.page.elements import element
from openconductor.reporting.page.tables import facts, row, table
from openconductor.reporting.report import Report
from openconductor.reporting.words import NOTHING, counted
from openconductor.types import Price


def costs(results: Results) -> Iterator[Element]:
    """What a question costs each system: dollars, tokens, calls, and how long it takes."""
    found = make_table(results)
    seconds = {(one["system"], one["task"]): one for one in latency(results)}
    several = len(results.tasks) > 1
    rows: list[Element] = []
    for one in found.rows:
        took = seconds.get((one.system, one.task), {})
        cells = [
            one.system,
            *([one.task] if several else []),
            *_costs(one),
            _number(took.get("p50_seconds")),
            _number(took.get("p95_seconds")),
        ]
        rows.append(row(cells, words=(0, 1) if several else (0,)))
    head = ["", *(["task"] if several else []), "US dollars", "tokens", "calls", "right answers a dollar"]
    head += ["seconds, median", "seconds, 95th percentile"]
    yield table("What a question costs", head, rows, words=(0, 1) if several else (0,))
    yield element(
        "p",
        "Each question asked once, masked ones included. A dash: a price is not known, or nothing was paid. What was "
        "answered from a journal took next to no time.",
        class_="legend",
    )
    if found.learning is not None:
        asked = cast("Mapping[str, int | float | None]", found.learning)
        dollars = asked["dollars"]
        price = "at an unknown price" if dollars is None else f"for {dollars:,.4f} US dollars"
        yield element(
            "p",
            "Beside these, the workers were asked for what trained baselines learn from and for hindsight: "
            f"{counted(int(asked['records'] or 0), 'record')}, {counted(int(asked['calls'] or 0), 'call')} {price}.",
        )


def _costs(one: Row) -> list[str]:
    return [
        _number(one.dollars_per_question),
        _number(one.tokens_per_question),
        _number(one.calls_per_question),
        _number(one.right_per_dollar),
    ]


def _number(value: object) -> str:
    """A number with three digits that count.

    >>> [_number(value) for value in (None, 0.000012345, 0.0, 3.6499, 123.4, 123456.7)]
    ['-', '0.0000123', '0', '3.65', '123', '123,457']
    """
    if not isinstance(value, int | float):
        return NOTHING
    if value >= 100:
        return f"{value:,.0f}"
    if value == 0:
        return "0"
    digits = max(0, 2 - int(f"{value:e}".partition("e")[2]))
    return f"{value:.{digits}f}"


# ── how it was made ──────────────────────────────────────────────────────────────────────────────────────────────────
def origin(report: Report, results: Results | None, environment: Mapping[str, object] | None) -> Iterator[Element]:
    """What is needed to make the same evaluation again, as far as it is known here."""
    known: list[tuple[str, Element | str]] = [("evaluation", report.name), ("setting", report.setting)]
    if results is not None:
        seed = results.config.seed
        known.append(("seed", "none given: 0 where something is drawn" if seed is None else str(seed)))
        known.append(("repeats", str(results.config.repeats)))
    if environment is not None:
        known += _versions(environment)
    if report.missing:
        known.append(("not whole", f"{counted(report.missing, 'record')} of the evaluation are missing"))
    yield facts(known)
    if results is not None and results.prices:
        rows = [
            row([name, *_prices(results.prices.get(name))], words=(0,)) for _, name in sorted(results.workers.items())
        ]
        yield table("Prices of the workers, in US dollars a million tokens", ["", "read", "written"], rows)
    if environment is not None and (rows := list(_tasks(environment))):
        yield table("The tasks' data", ["", "problems", "data set", "split", "fingerprint"], rows, words=(0, 2, 3, 4))
    if results is not None:
        yield element("h3", "Recipe")
        yield element("pre", element("code", dump_eval_config(results.config)), tabindex="0", aria_label="Recipe, TOML")


def _versions(environment: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    packages = _mapping(environment.get("packages"))
    for name in ("python", "platform"):
        if environment.get(name) is not None:
            yield name, str(environment[name])
    there = [f"{name} {version}" for name, version in packages.items() if version is not None]
    if there:
        yield "packages", ", ".join(there)
    if environment.get("sandbox") is not None:
        yield "sandbox", str(environment["sandbox"])


def _tasks(environment: Mapping[str, object]) -> Iterator[Element]:
    for name, about in _mapping(_mapping(environment.get("inputs")).get("tasks")).items():
        task = _mapping(about)
        source = _mapping(task.get("source"))
        notes = cast("list[object]", source.get("notes") or [])
        data = " ".join(str(one) for one in (source.get("dataset"), source.get("revision")) if one)
        said = "; ".join([data, *map(str, notes)]).strip("; ")
        cells = [name, str(task.get("problems", NOTHING)), said or NOTHING, str(source.get("split") or NOTHING)]
        yield row([*cells, str(task.get("digest") or NOTHING)], words=(0, 2, 3, 4))


def _prices(price: Price | None) -> list[str]:
    return [NOTHING, NOTHING] if price is None else [format(price.input, "f"), format(price.output, "f")]


def _mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}
