"""A training's curve at its beginning and its end, and how diversity goes with accuracy."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from planted_records import Player, always, flat, play

from openconductor.errors import ConfigError
from openconductor.report import judge, orchestration
from openconductor.report.figures import sections
from openconductor.report.report import Report, training


def curve(folder: Path, iterations: int) -> Path:
    """Validity from 50 to 100 %, accuracy given valid as it was, routing from 2 bits to none, ever fewer shapes."""
    lines: list[str] = []
    for number in range(iterations):
        part = number / (iterations - 1)
        line = {
            "iteration": number,
            "rollouts": 64,
            "masked": 0,
            "validity": 0.5 + 0.5 * part,
            "accuracy": 0.96 * (0.5 + 0.5 * part),
            "accuracy_given_valid": 0.96,
            "routing_entropy_bits": 2.0 * (1 - part),
            "worker_share": {"anna": 0.5 + 0.5 * part, "bert": 0.5 - 0.5 * part},
            "topology": {"single": 32 + round(32 * part), "chain": 32 - round(32 * part)},
        }
        lines.append(json.dumps(line) + "\n")
    (folder / "curves.jsonl").write_text("".join(lines))
    return folder


def test_format_that_is_learnt_while_skill_stays_is_seen_in_the_curve(tmp_path: Path) -> None:
    found = training(curve(tmp_path, 100))
    assert found.iterations == 100
    assert found.validity.begin is not None and found.validity.end is not None
    assert found.validity.begin.high < found.validity.end.low
    assert found.given_valid.begin == found.given_valid.end
    assert found.routing_entropy.end is not None
    assert found.routing_entropy.end.value < 0.5
    assert found.shapes.begin is not None and found.shapes.end is not None
    assert found.shapes.begin.value == pytest.approx(2.0, abs=0.02)
    assert found.shapes.end.value < 1.8


def test_one_iteration_has_a_level_and_no_interval(tmp_path: Path) -> None:
    found = training(curve(tmp_path, 6))
    assert found.window == 1
    records = play({"conductor": Player(flat(0.5), always(0), planned=True)}, 0, questions=5)
    figures = orchestration(records)
    report = Report("r", "unconstrained", 0, figures, judge(figures), training=found)
    (part,) = [part for part in sections(report) if part.title == "The training"]
    assert part.rows[0] == ("valid plans, %", "50.0", "100.0")


def test_a_folder_without_a_curve_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        training(tmp_path)
