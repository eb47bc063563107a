"""The training of a Conductor, for a report: its curve, its plans, and the texts that it wrote."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from openconductor.evaluation.records import JOURNAL
from openconductor.evaluation.statistics import Estimate, mean_interval
from openconductor.evaluation.strategies import (
    Diversity,
    Pattern,
    diversity,
    first_patterns,
    journaled_plans,
)
from openconductor.plots.iterations import Iteration, read_iterations, read_terms, window_of
from openconductor.store import read_store


@dataclass(frozen=True, slots=True)
class Course:
    """One measure at the beginning and at the end of a training; None: it could not be measured."""

    begin: Estimate | None
    end: Estimate | None


@dataclass(frozen=True, slots=True)
class Training:
    """The curve of a training: form, skill and routing at its beginning and its end.

    Rollouts are sampled on training questions, so nothing here is a result on held-out ones, and
    the verdict does not rest on it. Intervals are over iterations: they say how sure the level is,
    not how a repeated training would end.

    Attributes:
        iterations: the number of iterations.
        window: the number of iterations that the beginning, and the end, are.
        validity, given_valid, accuracy: shares.
        routing_entropy: bits.
        shapes: the effective number of shapes of workflows.
        diversity: strategies and patterns in each tenth of the training; empty: no journal holds
            its plans.
        patterns: the first distinct patterns, from the same journal.
        terms: the workers that its questions offered; "": all of them.
        study: the result of ``train --study`` for all its seeds; None: it was no run of a study.
    """

    iterations: int
    window: int
    validity: Course
    given_valid: Course
    accuracy: Course
    routing_entropy: Course
    shapes: Course
    diversity: tuple[Diversity, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    terms: str = ""
    study: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, object]:
        """Return plain values."""
        values = asdict(self)
        for pattern in values["patterns"]:
            for name in ("topology", "example", "accuracy"):
                del pattern[name]
        return values


def read_training(folder: Path) -> Training:
    """Read a training's folder, or its ``curves.jsonl``.

    Raises:
        ConfigError: there is no curve.
        JournalError: its journal cannot be read.
    """
    curve = read_iterations(folder)
    window = window_of(len(curve))
    journal = folder / JOURNAL
    plans = list(journaled_plans(journal)) if journal.is_file() else []
    return Training(
        iterations=len(curve),
        window=window,
        validity=_course(curve, "validity", window),
        given_valid=_course(curve, "given_valid", window),
        accuracy=_course(curve, "accuracy", window),
        routing_entropy=_course(curve, "routing_entropy", window),
        shapes=_course(curve, "diversity", window),
        diversity=diversity(plans),
        patterns=first_patterns(plans),
        terms=read_terms(folder),
        study=_read_study(folder),
    )


def _course(curve: Sequence[Iteration], measure: str, window: int) -> Course:
    values = [getattr(iteration, measure) for iteration in curve]
    return Course(begin=_level(values[:window]), end=_level(values[len(values) - window :]))


def _level(values: Sequence[float | None]) -> Estimate | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    low, high = mean_interval(known) if len(known) > 1 else (known[0], known[0])
    return Estimate(fmean(known), low, high, len(known))


def _read_study(folder: Path) -> dict[str, Any] | None:
    file = folder.parent / "study.json"
    if not file.is_file():
        return None
    return {**json.loads(file.read_text("utf-8")), "run": folder.name}


# ── the texts that it wrote ───────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Completions:
    """The completions of some iterations, from a training's journal.

    Attributes:
        sampled: the number of completions.
        invalid: the reasons of invalid workflows with their counts, the most frequent first.
        examples: the last completion that was right, the last one that was wrong, and the last one
            of each reason, as they were kept.
    """

    sampled: int
    invalid: tuple[tuple[str, int], ...]
    examples: tuple[Mapping[str, Any], ...]


def read_completions(folder: Path, *, iterations: range) -> Completions:
    """Read the completions of some iterations of the training in ``folder``.

    Raises:
        JournalError: its journal is not there or cannot be read.
    """
    names = {f"iteration {number}" for number in iterations}
    sampled = 0
    invalid: Counter[str] = Counter()
    last: dict[str, Mapping[str, Any]] = {}
    with read_store(folder / JOURNAL) as journal:
        for outcome in journal.records():
            record = outcome.value
            if str(record.get("training")).partition(",")[0] not in names:
                continue
            sampled += 1
            if record["invalid"]:
                invalid[record["invalid"]] += 1
            last[record["invalid"] or _fate(record)] = record
    return Completions(sampled, tuple(invalid.most_common()), tuple(last.values()))


def _fate(record: Mapping[str, Any]) -> str:
    """Return whether a workflow's answer was right, wrong or masked."""
    fates = {True: "right", False: "wrong", None: "masked"}
    return fates[record.get("correct")]
