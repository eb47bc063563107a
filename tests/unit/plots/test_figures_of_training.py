"""What the figures of a training show is what the curve says."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import wilson_interval
from openconductor.gym.bundled import bundled_folder
from openconductor.plots import diversity, format_gain, training_accuracy, worker_share
from openconductor.plots.iterations import read_curve
from openconductor.plots.material import Material
from openconductor.plots.over_training import DRAWN
from openconductor.plots.sheet import caption_of

Write = Callable[..., Path]
Make = Callable[..., Record]


def line(panel: Any, gid: str) -> tuple[list[float], list[float]]:
    """The data of the line of a name."""
    (found,) = [one for one in panel.lines if one.get_gid() == gid]
    return list(found.get_xdata()), list(found.get_ydata())


def legend(figure: Any) -> list[str]:
    (found,) = figure.legends
    return [text.get_text() for text in found.get_texts()]


def ramp(values: Sequence[float], key: str = "accuracy") -> list[dict[str, object]]:
    return [{key: value} for value in values]


def test_the_accuracy_is_the_trailing_mean_and_the_dots_are_single_iterations(write_curve: Write) -> None:
    values = [place / 10 for place in range(10)]
    figure = training_accuracy.plot(Material(curve=read_curve(write_curve(*ramp(values)))))
    (panel,) = figure.axes
    assert line(panel, "accuracy: single") == (list(range(10)), values)
    numbers, means = line(panel, "accuracy")
    assert numbers == list(range(10))
    assert means == pytest.approx([0.0, *((values[place - 1] + values[place]) / 2 for place in range(1, 10))])
    assert legend(figure) == ["in training, last 85.0 %"]
    assert "n = 10 iterations of 64 rollouts, 0 masked" in caption_of(figure)
    assert "No worker alone was evaluated" in caption_of(figure)


def test_a_marker_at_zero_is_whole(write_curve: Write, evaluation: list[Record]) -> None:
    results = Material(evaluation, {0: "anna", 1: "bert"}, read_curve(write_curve(*ramp([0.5] * 10))))
    for plot in (training_accuracy.plot, worker_share.plot):
        low, high = plot(results).axes[0].get_ylim()
        assert -0.1 * high < low < 0


def test_each_worker_alone_is_a_level_with_its_interval(write_curve: Write, evaluation: list[Record]) -> None:
    results = Material(evaluation, {0: "anna", 1: "bert"}, read_curve(write_curve(*ramp([0.5] * 10))))
    figure = training_accuracy.plot(results)
    (panel,) = figure.axes
    assert line(panel, "level worker:anna")[1] == [0.5, 0.5]
    assert line(panel, "level worker:bert")[1] == [0.25, 0.25]
    assert line(panel, "level oracle")[1] == [1.0, 1.0]
    ((bar,),) = [one.lines[2] for one in panel.containers if one.lines[0].get_gid() == "worker:bert: interval"]
    (segment,) = bar.get_segments()
    assert [end[1] for end in segment] == pytest.approx(wilson_interval(1, 4))
    assert legend(figure) == [
        "in training, last 50.0 %",
        "anna 50.0 %",
        "bert 25.0 %",
        "oracle 100.0 %",
        "random 25.0 %",
    ]
    assert "on n = 4 evaluation questions, which are not those of the training" in caption_of(figure)
    # No iteration is marked under the levels' strip.
    assert max(panel.get_xticks()) <= 9


def test_of_many_workers_the_best_eight_have_levels_and_the_others_a_band(
    write_curve: Write, crowd: list[Record], long_names: dict[int, str]
) -> None:
    results = Material(crowd, long_names, read_curve(write_curve(*ramp([0.5] * 10))))
    figure = training_accuracy.plot(results)
    (panel,) = figure.axes
    assert len([one for one in panel.lines if str(one.get_gid()).startswith("level worker:")]) == 8
    assert [patch.get_gid() for patch in panel.patches].count("other workers") == 1
    assert any(text.startswith("12 other workers, ") for text in legend(figure))


def test_the_format_gain_shows_validity_beside_accuracy_given_valid_and_entropy(write_curve: Write) -> None:
    lines = [
        {"validity": v, "accuracy": 0.6 * v, "accuracy_given_valid": 0.6, "routing_entropy_bits": e}
        for v, e in ((0.5, 1.0), (0.6, 0.8), (0.8, 0.4), (1.0, 0.0))
    ]
    figure = format_gain.plot(Material(curve=read_curve(write_curve(*lines))))
    above, below = figure.axes
    assert line(above, "validity")[1] == [0.5, 0.6, 0.8, 1.0]
    assert line(above, "accuracy given valid")[1] == [0.6] * 4
    assert line(above, "accuracy")[1] == pytest.approx([0.3, 0.36, 0.48, 0.6])
    assert line(below, "routing entropy")[1] == [1.0, 0.8, 0.4, 0.0]
    assert line(below, "even spread")[1] == [1.0, 1.0]
    assert caption_of(figure).startswith(
        "From first to last: validity 50.0 % → 100.0 %; accuracy 30.0 % → 60.0 %; accuracy given valid "
        "60.0 % → 60.0 %; routing entropy 1.00 → 0.00 bits. Thin line: all 2 workers alike, 1.00 bits."
    )
    assert "too few for a mean" in caption_of(figure)


def test_a_gap_stays_a_gap(write_curve: Write) -> None:
    nothing = {"masked": 64, "validity": 0.0, "accuracy": 0.0, "accuracy_given_valid": 0.0}
    figure = format_gain.plot(Material(curve=read_curve(write_curve({}, nothing, {}))))
    _, values = line(figure.axes[0], "accuracy")
    assert values[0] == values[2] == 0.25
    assert math.isnan(values[1])
    assert "n = 3 iterations of 64 rollouts, 64 masked" in caption_of(figure)


def test_the_shares_of_workers_are_drawn_the_largest_last_share_first(write_curve: Write) -> None:
    lines = [{"worker_share": {"anna": 1 - place / 4, "bert": place / 4}} for place in range(4)]
    figure = worker_share.plot(Material(curve=read_curve(write_curve(*lines))))
    (panel,) = figure.axes
    assert line(panel, "anna")[1] == [1.0, 0.75, 0.5, 0.25]
    assert line(panel, "bert")[1] == [0.0, 0.25, 0.5, 0.75]
    assert legend(figure) == ["bert 75 %", "anna 25 %"]


def test_of_many_workers_the_small_shares_are_added_up(write_curve: Write) -> None:
    shares = {f"w{place}": (place + 1) / 78 for place in range(12)}
    figure = worker_share.plot(Material(curve=read_curve(write_curve({"worker_share": shares}))))
    (panel,) = figure.axes
    assert line(panel, "others")[1] == pytest.approx([sum(range(1, 6)) / 78])
    assert {one.get_gid() for one in panel.lines} == {*(f"w{place}" for place in range(5, 12)), "others"}
    assert legend(figure)[-1] == "5 others together 19 %"


def test_one_worker_is_said_in_words(write_curve: Write) -> None:
    figure = worker_share.plot(Material(curve=read_curve(write_curve({"worker_share": {"anna": 1.0}}))))
    assert [text.get_text() for text in figure.axes[0].texts] == ["There is one worker, anna: it has every step."]


def test_diversity_shows_shares_of_shapes_and_their_effective_number(write_curve: Write) -> None:
    lines = [{"topology": {"single": 4, "chain": 4}, "accuracy": 0.2}, {"topology": {"chain": 8}, "accuracy": 0.4}]
    figure = diversity.plot(Material(curve=read_curve(write_curve(*lines))))
    above, middle, below = figure.axes
    assert line(above, "single")[1] == [0.5, 0.0]
    assert line(above, "chain")[1] == [0.5, 1.0]
    assert line(middle, "diversity")[1] == pytest.approx([2.0, 1.0])
    assert line(below, "accuracy")[1] == [0.2, 0.4]
    assert legend(figure) == ["single", "chain"]


def test_a_long_curve_is_thinned_evenly_and_keeps_its_end() -> None:
    curve = read_curve(bundled_folder() / "run")
    figure = training_accuracy.plot(Material(curve=curve))
    numbers, _ = line(figure.axes[0], "accuracy")
    assert numbers == list(range(1, 410, 2))
    assert len(numbers) <= DRAWN
    assert "dots: one iteration in 2" in caption_of(figure)
