"""The demo's table: every figure is there, and its words say no more than the figures."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from openconductor.cli import main
from openconductor.cli.demo import show_gym_table
from openconductor.evaluation.gym_table import GymTable
from openconductor.evaluation.statistics import Estimate
from openconductor.types import Usage

TABLE = GymTable(
    questions=400,
    seed=7,
    levels={
        "conductor": Estimate(0.7, 0.65, 0.75, 400),
        "random": Estimate(0.05, 0.03, 0.08, 400),
        "best_worker": Estimate(0.2, 0.16, 0.24, 400),
        "best_fixed": Estimate(0.5, 0.45, 0.55, 400),
        "oracle": Estimate(0.8, 0.76, 0.84, 400),
    },
    workers={"maven": 0.2, "jack": 0.15},
    masked=0,
    validity=0.995,
    accuracy_given_valid=0.7035,
    routing_entropy_bits=2.25,
    worker_share={"maven": 0.6, "jack": 0.4},
    topology_share={"single": 0.3, "chain": 0.7},
    mean_steps=2.5,
    mean_steps_by_kind={"single": 1.0, "pair": 2.0},
    usage=Usage(12345, output_tokens=678, dollars=Decimal("0.0412")),
    seconds=9.25,
)
FIGURES = """
400|seed 7|70.0%|65.0 – 75.0|maven alone, the best worker|jack alone|50.0%|80.0%|5.0%|99.5%|70.3%|2.25 bits|chain 70%
maven 60%|single 1.00|2.50|12,345|$0.0412|$0.000103
"""


def conductor(value: float, low: float, high: float, **changed: Any) -> GymTable:
    return replace(
        TABLE, levels={**TABLE.levels, "conductor": Estimate(value, low, high, 400)}, **changed
    )


@pytest.fixture
def drawn(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    def draw(table: GymTable = TABLE, *, width: int = 100) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        show_gym_table(table)
        return capsys.readouterr().out

    return draw


def test_workers_that_are_left_out_are_left_out_of_every_level(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["demo", "--json", "--questions", "16"]
    left_out = [
        text
        for name in ("scribe", "lister", "counter", "converter")
        for text in ("--without", name)
    ]
    assert main([*options, *left_out]) == 0
    some = json.loads(capsys.readouterr().out)
    assert set(some["workers"]) == {"maven", "novice", "referee", "jack"}
    assert set(some["accuracy"]) == {"conductor", "random", "best_worker", "oracle"}, (
        "the best fixed one needs more"
    )
    assert main(options) == 0
    assert (
        some["accuracy"]["oracle"] < json.loads(capsys.readouterr().out)["accuracy"]["oracle"] - 0.2
    )
    assert main([*options, "--without", "nobody"]) == 2
    assert "worker 'nobody' is not in the pool" in capsys.readouterr().err


def test_every_figure_is_in_the_table_with_its_lead_in_points_and_its_share_of_the_oracle(
    drawn,
) -> None:
    text = drawn()
    assert [it for line in FIGURES.split("\n") for it in line.split("|") if it not in text] == []
    verdict = " ".join(text.split())
    assert "50.0 percentage points above the best worker alone (maven)" in verdict
    assert "20.0 percentage points above the best fixed workflow" in verdict
    assert "87.5% of what the oracle reaches" in verdict
    assert "overlap" not in verdict


@pytest.mark.parametrize("width", [30, 40, 60, 80, 200])
def test_no_figure_is_cut_off_in_a_narrow_terminal(drawn, width: int) -> None:
    text = drawn(width=width)
    assert "…" not in text
    for figure in ("70.0%", "65.0 – 75.0", "20.0%", "16.0 – 24.0", "50.0%", "5.0%", "3.0 – 8.0"):
        assert figure in text, figure
    assert max(map(len, text.splitlines())) <= width
    assert ("█" in text) == (width >= 80)


def test_a_conductor_that_is_worse_is_below_and_a_lead_within_the_intervals_is_uncertain(
    drawn,
) -> None:
    verdict = " ".join(drawn(conductor(0.1, 0.07, 0.13)).split())
    assert (
        "10.0 percentage points below the best worker" in verdict and "points above" not in verdict
    )
    assert "fixed workflow (the intervals overlap)" in " ".join(
        drawn(conductor(0.53, 0.48, 0.58)).split()
    )


def test_what_could_not_be_measured_is_left_out(drawn) -> None:
    nothing: dict[str, Any] = {
        "accuracy_given_valid": None,
        "validity": 0.0,
        "mean_steps": None,
        "masked": 3,
    }
    shares: dict[str, Any] = {"mean_steps_by_kind": {"single": None}, "worker_share": {"jack": 0.0}}
    text = drawn(conductor(0.0, 0.0, 0.01, topology_share={}, **nothing, **shares))
    assert "nan" not in text and "jack 0%" not in text
    assert "3 could not be decided" in text
