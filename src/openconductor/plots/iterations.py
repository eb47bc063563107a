"""The curve of a training, as figures need it.

``read_iterations`` reads a run folder, or its ``curves.jsonl`` as ``training.curves`` writes it;
the training may still be running. An iteration in which nothing could be measured says 0 in the
file; here it is None, so that a figure shows a gap and never a fall to zero.
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
    """The measures of one iteration; shares are fractions, entropies bits.

    Attributes:
        number: the iteration, from 0.
        rollouts, masked: the number of rollouts, and of those that could not be decided.
        validity, accuracy: of the decided rollouts; None: there was none.
        given_valid: accuracy of the valid ones; None: there was none.
        routing_entropy: of the workers' shares over steps; None: there was no step.
        worker_share: each worker's share of the steps, by name in pool order; empty: no step.
        topology: the number of workflows of each shape.
        by_kind: accuracy by kind of question.
        phase: imitation or GRPO.
        reward: the mean of the decided rollouts.
        subtask_entropy: of who does a given subtask.
        steps_by_kind: steps a workflow.
        truncated: the share of completions that were cut.
        alike: the share of groups whose rewards are all the same.
        tokens: of a completion.
        dollars: US dollars of all answers.
        seconds: wall time.
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
    phase: str = "grpo"
    reward: float | None = None
    subtask_entropy: float | None = None
    steps_by_kind: Mapping[str, float] = field(default_factory=dict[str, float])
    truncated: float | None = None
    alike: float | None = None
    tokens: float | None = None
    dollars: float = 0.0
    seconds: float | None = None

    @property
    def masked_share(self) -> float:
        """The share of rollouts that could not be decided."""
        return self.masked / max(1, self.rollouts)

    @property
    def steps(self) -> float | None:
        """Steps a workflow, every kind of question weighing the same; None: no workflow."""
        return fmean(self.steps_by_kind.values()) if self.steps_by_kind else None

    @property
    def diversity(self) -> float | None:
        """The effective number of shapes, 2 to the power of their entropy; None: no workflow."""
        if not any(self.topology.values()):
            return None
        return 2 ** entropy_bits(self.topology.values())


def read_iterations(path: Path | str) -> tuple[Iteration, ...]:
    """Read the iterations of a curve, in order.

    Args:
        path: a run folder, or the file itself. An unfinished last line is left out, because it is
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
            iterations.append(_make_iteration(json.loads(line)))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if number == len(lines) and not line.endswith("\n"):
                break
            raise ConfigError(
                f"curve {file}, line {number}: got {line[:80]!r}, "
                f"expected an iteration of a training ({error!r})"
            ) from error
    return tuple(iterations)


def _make_iteration(record: Mapping[str, Any]) -> Iteration:
    decided = record["rollouts"] - record["masked"]
    valid = decided and record["validity"]
    stepped = any(record["worker_share"].values())
    return Iteration(
        number=record["iteration"],
        rollouts=record["rollouts"],
        masked=record["masked"],
        validity=record["validity"] if decided else None,
        accuracy=record["accuracy"] if decided else None,
        given_valid=record["accuracy_given_valid"] if valid else None,
        routing_entropy=record["routing_entropy_bits"] if stepped else None,
        worker_share=record["worker_share"] if stepped else {},
        topology=record["topology"],
        by_kind=record.get("accuracy_by_kind", {}),
        phase=record.get("phase", "grpo"),
        reward=record.get("reward") if decided else None,
        subtask_entropy=record.get("routing_entropy_by_subtask_bits") if stepped else None,
        steps_by_kind=record.get("steps_by_kind", {}),
        truncated=record.get("truncated") if decided else None,
        alike=record.get("groups_without_spread"),
        tokens=record.get("completion_tokens"),
        dollars=decided * record.get("dollars", 0.0),
        seconds=record.get("seconds"),
    )


def read_terms(path: Path | str) -> str:
    """Say how many workers the questions of a training offered; "": its folder does not say so."""
    file = Path(path, RECIPE)
    if not file.is_file():
        return ""
    recipe = tomllib.loads(file.read_text(encoding="utf-8"))
    offered = recipe.get("rollout", {}).get("offered")
    if not offered:
        return ""
    fewest, most = offered
    return f"In the training each question offered {fewest} to {most} of the workers."


def window_of(count: int) -> int:
    """Return how many iterations a mean looks back: 20, and fewer on a short curve."""
    return max(1, min(WINDOW, count // 5))


def smoothed(values: Sequence[float | None], window: int) -> list[tuple[float, float, float]]:
    """Return the mean of the last ``window`` values at each place, and its 95 % interval.

    Gaps (None) are left out. The mean is NaN where all are gaps, the interval where there are too
    few values. It is Student's over the values in the window, taken as independent: it says how
    sure the level is, not how far single iterations lie apart. Where the curve rises or falls
    within the window it is wider than need be.

    >>> [mean for mean, _, _ in smoothed([1.0, None, 3.0], 2)]
    [1.0, 1.0, 3.0]
    """
    points: list[tuple[float, float, float]] = []
    for end in range(1, len(values) + 1):
        known = [value for value in values[max(0, end - window) : end] if value is not None]
        mean = fmean(known) if known else math.nan
        low, high = mean_interval(known) if len(known) >= FEWEST else (math.nan, math.nan)
        points.append((mean, low, high))
    return points
