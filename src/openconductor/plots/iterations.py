"""The curve of a training, as figures need it.

In: a run folder, or its ``curves.jsonl`` as ``training.curves`` writes it. Out: an Iteration a
line. Read only: the training may still be writing.

An iteration in which nothing could be measured says 0 in the file; here it is None, so that a
figure shows a gap and never a fall to zero.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from openconductor.errors import ConfigError
from openconductor.evaluation.statistics import mean_interval
from openconductor.measures import entropy_bits

FILE, RECIPE = "curves.jsonl", "config.toml"
WINDOW = 20
"""The most iterations that a smoothed curve looks back."""
FEWEST = 5
"""The fewest values that an interval of their mean is drawn for."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """What was measured in one iteration; shares are fractions, entropies bits.

    Attributes:
        number: the iteration, from 0.
        rollouts, masked: how many there were, and how many of them could not be decided.
        validity, accuracy: of the decided rollouts; None where there was none.
        given_valid: accuracy of the valid ones; None where none was valid.
        routing_entropy: of the workers' shares over steps; None where there was no step.
        worker_share: each worker's share of the steps, by name in pool order; empty where there was
            no step.
        topology: how many workflows had each shape.
        by_kind: accuracy by kind of question.
    """

    number: int
    rollouts: int
    masked: int
    validity: float | None
    accuracy: float | None
    given_valid: float | None
    routing_entropy: float | None
    worker_share: Mapping[str, float]
    topology: Mapping[str, int]
    by_kind: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def diversity(self) -> float | None:
        """The effective number of shapes, two to the power of their entropy in bits; None without workflows."""
        return 2 ** entropy_bits(self.topology.values()) if any(self.topology.values()) else None


def read_curve(path: Path | str) -> tuple[Iteration, ...]:
    """The iterations of a curve, in order.

    Args:
        path: a run folder, or the file itself. A last line that is not whole is left out: it is
            being written.

    Raises:
        ConfigError: there is no such file, or it is no curve; says which line.
    """
    path = Path(path)
    file = path / FILE if path.is_dir() else path
    try:
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"curve {file}: {error}; expected the folder of a training, or its {FILE}"
        ) from error
    iterations: list[Iteration] = []
    for number, line in enumerate(lines, start=1):
        try:
            iterations.append(_iteration(json.loads(line)))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if number == len(lines) and not line.endswith("\n"):
                break
            raise ConfigError(
                f"curve {file}, line {number}: got {line[:80]!r}, expected an iteration of a training ({error!r})"
            ) from error
    return tuple(iterations)


def terms(path: Path | str) -> str:
    """What the questions of a training offered, where its folder says that they did not offer all workers; else ""."""
    file = Path(path, RECIPE)
    offered = (
        tomllib.loads(file.read_text(encoding="utf-8")).get("rollout", {}).get("offered")
        if file.is_file()
        else ()
    )
    return (
        f"In the training each question offered {offered[0]} to {offered[1]} of the workers."
        if offered
        else ""
    )


def _iteration(record: Mapping[str, Any]) -> Iteration:
    rollouts, masked = int(record["rollouts"]), int(record["masked"])
    shares = {str(name): float(share) for name, share in record["worker_share"].items()}
    decided, stepped = rollouts > masked, any(shares.values())
    validity = float(record["validity"]) if decided else None
    return Iteration(
        number=int(record["iteration"]),
        rollouts=rollouts,
        masked=masked,
        validity=validity,
        accuracy=float(record["accuracy"]) if decided else None,
        given_valid=float(record["accuracy_given_valid"]) if validity else None,
        routing_entropy=float(record["routing_entropy_bits"]) if stepped else None,
        worker_share=shares if stepped else {},
        topology={str(name): int(count) for name, count in record["topology"].items()},
        by_kind={
            str(kind): float(share) for kind, share in record.get("accuracy_by_kind", {}).items()
        },
    )


def window_of(count: int) -> int:
    """How many iterations a mean looks back: 20, and less on a short curve."""
    return max(1, min(WINDOW, count // 5))


def smoothed(values: Sequence[float | None], window: int) -> list[tuple[float, float, float]]:
    """The mean of the last ``window`` values at each place, gaps left out, and its 95 % interval.

    The mean is NaN where all are gaps, the interval where there are too few values. It is Student's
    over the values in the window, taken as independent: it says how sure the level is, not how far
    single iterations lie apart. Where the curve rises or falls within the window it is wider than
    need be.

    >>> [mean for mean, _, _ in smoothed([1.0, None, 3.0], 2)]
    [1.0, 1.0, 3.0]
    """
    found: list[tuple[float, float, float]] = []
    for end in range(1, len(values) + 1):
        known = [value for value in values[max(0, end - window) : end] if value is not None]
        ends = mean_interval(known) if len(known) >= FEWEST else (math.nan, math.nan)
        found.append((fmean(known) if known else math.nan, *ends))
    return found
