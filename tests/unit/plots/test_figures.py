"""Figures show what records and curves say; with little or nothing to draw they say so in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import wilson_interval
from openconductor.plots import FIGURES, OF_TRAINING, draw
from openconductor.plots.accuracy_cost import DOLLARS
from openconductor.plots.iterations import read_iterations, read_terms
from openconductor.plots.material import Material

Make = Callable[..., Record]
Write = Callable[..., Path]
NAMES = {0: "anna", 1: "bert"}
EVALUATED = [name for name in FIGURES if name not in OF_TRAINING]
TRAINED = sorted(OF_TRAINING)


def message(drawn: Any) -> str:
    return drawn.caption if drawn.empty else ""


def legend(drawn: Any) -> list[str]:
    (found,) = drawn.figure.legends
    return [text.get_text() for text in found.get_texts()]


def labelled(panel: Any, label: str) -> Any:
    """Return the line, the bars or the point with a label."""
    parts = {part.get_label(): part for part in (*panel.lines, *panel.containers)}
    return parts[label]


def line(panel: Any, label: str) -> list[float]:
    return list(labelled(panel, label).get_ydata())


def dots(panel: Any) -> dict[str, list[float]]:
    """Return the places of the points with intervals by label, in the order of their drawing."""
    return {point.get_label(): list(point.lines[0].get_xydata()[0]) for point in panel.containers}


def dot(panel: Any, label: str) -> list[float]:
    return dots(panel)[label]


def ticks(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


# ── an evaluation ─────────────────────────────────────────────────────────────────────────────────
def test_each_system_stands_at_its_cost_and_its_accuracy(evaluation: list[Record]) -> None:
    drawn = draw("accuracy_cost", Material(evaluation, NAMES))
    (panel,) = drawn.figure.axes
    assert dot(panel, "conductor") == pytest.approx([20, 0.75])
    assert dot(panel, "random") == pytest.approx([50, 0.25])
    (segment,) = labelled(panel, "conductor").lines[2][1].get_segments()
    assert [end[1] for end in segment] == pytest.approx(wilson_interval(3, 4))
    assert (panel.get_xscale(), panel.get_xlabel()) == ("log", DOLLARS)
    assert "workers alone (2)" in legend(drawn), "with one look: who they are is in another figure"
    assert "n = 4 questions a system" in drawn.caption


def test_the_front_is_a_staircase_without_systems_that_know_the_answers(evaluation) -> None:
    drawn = draw("accuracy_cost", Material(evaluation, NAMES))
    (panel,) = drawn.figure.axes
    front = labelled(panel, "Pareto front")
    assert list(front.get_xdata()) == pytest.approx([1, 10, 20, 50])
    assert list(front.get_ydata()) == pytest.approx([0.25, 0.5, 0.75, 0.75])
    assert line(panel, "oracle") == [1.0, 1.0]
    assert "Lines, for they know the answers or the workers: oracle." in drawn.caption


RIGHT_OF_TEN = {
    "conductor": 8,
    "conductor?rounds=2": 8,
    "conductor?access=none": 5,
    "worker:anna": 2,
    "worker:bert": 2,
}


def test_no_marker_lies_on_another_and_what_is_left_out_for_it_is_named(record: Make) -> None:
    records: list[Record] = []
    for name, right in RIGHT_OF_TEN.items():
        records += [record(name, place, place < right, [0]) for place in range(10)]
    drawn = draw("accuracy_cost", Material(records, NAMES))
    (panel,) = drawn.figure.axes
    heights = [height for _, height in dots(panel).values()]
    assert heights == [0.8, 0.5, 0.2], "the Conductor is above all that is drawn"
    assert "Not drawn, for they would lie on another marker: rounds=2, bert." in drawn.caption
    assert line(panel, "Pareto front") == [0.8, 0.8], "without ablations"
    assert "The front is without these." in drawn.caption


FREE = {"dollars": "0"}
UNUSED = {"dollars": "0", "tokens": 0}


@pytest.mark.parametrize(
    ("anna", "bert", "unit", "shown", "text"),
    [
        (FREE, {}, DOLLARS, 1, "Not drawn, for lack of US dollars or"),
        (FREE, FREE, "tokens a question", 2, "Not in dollars: nothing costs any"),
        ({"unpriced": 1}, {}, "tokens a question", 2, "Not in dollars: not every price is known."),
        (UNUSED, UNUSED, "calls a question", 2, "Not in dollars"),
    ],
)
def test_what_cannot_be_compared_is_left_out_in_words(
    record, anna, bert, unit, shown, text
) -> None:
    records = [record("worker:anna", 0, True, [0], **anna)]
    records.append(record("worker:bert", 0, True, [0], **bert))
    drawn = draw("accuracy_cost", Material(records, NAMES))
    assert drawn.figure.axes[0].get_xlabel() == unit
    assert set(legend(drawn)) == {"Pareto front", f"workers alone ({shown})"}
    assert text in drawn.caption


def test_who_did_not_answer_every_task_is_left_out_in_words(record: Make) -> None:
    records = [record("worker:anna", 0, True, [0]), record("worker:bert", 0, True, [0], task="u")]
    records += [record("worker:carl", 0, True, [0], task=task) for task in ("t", "u")]
    drawn = draw("accuracy_cost", Material(records, NAMES))
    assert set(legend(drawn)) == {"Pareto front", "workers alone (1)"}
    assert "a decided answer to some task: anna, bert." in drawn.caption


def test_the_heat_map_holds_the_accuracy_of_each_worker_and_the_conductor_by_kind(
    evaluation, record
) -> None:
    drawn = draw("worker_kind", Material(evaluation, NAMES))
    (panel,) = drawn.figure.axes
    assert ticks(panel.yaxis) == ["anna", "bert", "conductor"]
    assert ticks(panel.xaxis) == ["easy", "hard"]
    assert [text.get_text() for text in panel.texts] == ["100", "0", "0", "50", "100", "50"]
    shades = panel.collections[0].get_array().ravel()
    assert list(shades) == pytest.approx([1, 0, 0, 0.5, 1, 0.5])
    assert "n, questions: easy 2, hard 2. 0 records are masked" in drawn.caption
    right = record("worker:anna", 0, True, kind="easy")
    masked = record("worker:anna", 1, None, kind="hard")
    (panel,) = draw("worker_kind", Material([right, masked])).figure.axes
    assert [text.get_text() for text in panel.texts] == ["100", "–"]


def test_shares_of_rounds_hold_first_and_later_steps_apart(record: Make) -> None:
    records = [record("reflection:anna?n=5", place, True, [0], [0]) for place in range(5)]
    for rounds in (([0, 0], [1]), ([0, 1], [1, 0]), ([0], []), ([0], None)):
        records.append(record("conductor", len(records), True, *rounds, planned=True))
    drawn = draw("worker_rounds", Material(records, {**NAMES, 2: "carl"}))
    assert legend(drawn) == ["first round", "later rounds"]
    shares = [point.lines[0].get_xdata()[0] for point in drawn.figure.axes[0].containers]
    assert shares == pytest.approx([5 / 6, 1 / 6, 1 / 3, 2 / 3])  # anna and bert, first and later
    assert drawn.caption.startswith(
        "conductor: n = 4 answers, 4 with a later round; of 4 later rounds 2 are new workflows, "
        "1 accept, 1 are not a workflow."
    )
    assert "Not shown: 1 of 3 workers" in drawn.caption


def test_lengths_are_shares_by_kind(evaluation: list[Record]) -> None:
    drawn = draw("workflow_length", Material(evaluation, NAMES))
    (panel,) = drawn.figure.axes
    assert ticks(panel.yaxis) == ["easy", "hard"]
    shares: dict[str, list[float]] = {}
    for name in legend(drawn):
        shares[name] = [float(bar.get_width()) for bar in labelled(panel, name).patches]
    assert shares == {"1 step": [1, 0], "2 steps": [0, 0.5], "3 steps": [0, 0.5]}
    assert ticks(panel.child_axes[0].yaxis) == ["n = 2, mean 1.0", "n = 2, mean 2.5"]
    counts = "n = 4 valid first workflows of 4 questions; 0 of 4 texts were none and are left out."
    assert drawn.caption.startswith(f"conductor: {counts}")


# ── a training ────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def curve_of(write_curve: Write) -> Callable[..., Any]:
    """Return a function that makes the material of a curve, an iteration an argument."""
    return lambda *iterations, **more: Material(
        curve=read_iterations(write_curve(*iterations)), **more
    )


def test_a_figure_is_about_the_system_that_is_named_or_the_conductor_itself(record: Make) -> None:
    once = record("conductor", 0, True, [0], planned=True)
    twice = record("conductor?rounds=2", 0, True, [0], [1], planned=True)
    fixed = record("best_fixed", 0, True, [0, 1])
    records = [once, twice, fixed]
    assert draw("worker_rounds", Material(records, NAMES)).empty
    named = draw("worker_rounds", Material(records, NAMES, system=twice.system))
    assert named.caption.startswith("rounds=2: n = 1")
    named = draw("workflow_length", Material(records, NAMES, system="best_fixed"))
    counts = "n = 1 valid first workflows of 1 questions; nobody wrote them in words."
    assert named.caption.startswith(f"best fixed workflow: {counts}")


# ── a training ────────────────────────────────────────────────────────────────────────────────────
def test_a_training_is_drawn_as_trailing_means_of_form_skill_and_routing(curve_of) -> None:
    values = [0.1 + place / 20 for place in range(10)]
    lines: list[dict[str, object]] = []
    for value in values:
        measures = {"validity": 2 * value, "accuracy": value, "routing_entropy_bits": 1 - value}
        lines.append(measures)
    drawn = draw("training_accuracy", curve_of(*lines))
    above, below = drawn.figure.axes
    validity, right, given_valid, entropy = legend(drawn)
    assert (validity, right) == ("validity 105.0 %", "accuracy 52.5 %")
    assert (given_valid, entropy) == ("given valid 50.0 %", "routing entropy 0.47 bits")
    means = [values[0], *((first + second) / 2 for first, second in pairwise(values))]
    assert line(above, right) == pytest.approx(means)
    assert line(below, entropy) == pytest.approx([1 - mean for mean in means])
    assert values in [list(drawn.get_ydata()) for drawn in above.lines], "single iterations"
    assert "n = 10 iterations of 64 rollouts, 0 masked" in drawn.caption
    assert "No worker alone was evaluated" in drawn.caption


def test_workers_bounds_and_the_conductor_before_and_after_are_levels(
    curve_of, evaluation, record
) -> None:
    before = [record("untrained", place, place == 0, kind="easy") for place in range(4)]
    material = curve_of(*[{}] * 10, records=[*evaluation, *before], workers=NAMES)
    drawn = draw("training_accuracy", material)
    above = drawn.figure.axes[0]
    assert {"best worker, anna 50.0 %", "oracle 100.0 %"} <= set(legend(drawn))
    levels = {level.get_ydata()[0] for level in above.lines if len(level.get_ydata()) == 2}
    assert levels == {0.5, 0.25, 1.0}, "bert's line is thin, and not in the legend"
    assert dot(above, "untrained 25.0 %") == [0, 0.25]
    assert dot(above, "conductor 75.0 %") == [9, 0.75], "at the end of its training"
    band = above.patches[0]
    ends = (band.get_y(), band.get_y() + band.get_height())
    assert ends == pytest.approx(wilson_interval(2, 4))
    assert "on n = 4 evaluation questions, not those of the training" in drawn.caption
    rows = ticks(draw("worker_kind", material).figure.axes[0].yaxis)
    assert rows == ["anna", "bert", "untrained", "conductor"]


def test_a_training_s_kinds_weigh_as_in_the_evaluation_and_what_differs_is_said(
    record, curve_of
) -> None:
    kinds = ("easy", "hard", "hard", "hard")
    records = [record("conductor", place, True, kind=kind) for place, kind in enumerate(kinds)]
    measures = {"accuracy": 0.5, "validity": 0.8, "accuracy_by_kind": {"easy": 1.0, "hard": 0.2}}
    material = curve_of(measures, measures, records=records, terms="Four of the workers.")
    drawn = draw("training_accuracy", material)
    above = drawn.figure.axes[0]
    assert line(above, "accuracy 40.0 %") == pytest.approx([0.4, 0.4])  # one easy, three hard
    assert line(above, "given valid 50.0 %") == pytest.approx([0.5, 0.5])
    caption = "Each kind of question weighs as in the evaluation. Four of the workers."
    assert caption in drawn.caption
    others = [replace(other, kind="other") for other in records]
    drawn = draw("training_accuracy", replace(material, records=others))
    assert "mixed in another way than those of the levels" in drawn.caption
    assert "accuracy 50.0 %" in legend(drawn)


def test_the_terms_of_a_training_say_how_many_workers_a_question_offered(tmp_path: Path) -> None:
    assert read_terms(tmp_path) == ""
    (tmp_path / "config.toml").write_text("[rollout]\noffered = [4, 8]\n")
    assert read_terms(tmp_path) == "In the training each question offered 4 to 8 of the workers."


def test_the_shares_of_the_largest_workers_are_drawn_and_all_others_together(curve_of) -> None:
    def drawn_of(*shares: dict[str, float]) -> Any:
        return draw("worker_share", curve_of(*({"worker_share": share} for share in shares)))

    drawn = drawn_of(*({"anna": 1 - place / 8, "bert": place / 8} for place in range(4)))
    assert legend(drawn) == ["anna 62.5 %", "bert 37.5 %"]
    assert line(drawn.figure.axes[0], "anna 62.5 %") == [1.0, 0.875, 0.75, 0.625]
    many = {f"w{place}": 0.1 for place in range(10)}
    assert legend(drawn_of(many))[-1] == "3 others together 30.0 %"
    alone = message(drawn_of({"anna": 1.0}))
    assert alone.startswith("There is one worker, anna: it has every step.")


@pytest.mark.parametrize("name", EVALUATED)
def test_where_all_is_masked_a_figure_says_so(name: str, record: Make) -> None:
    records = [record("worker:anna", place, None, [0]) for place in range(3)]
    records += [record("conductor", place, None, None, planned=True) for place in range(3)]
    text = message(draw(name, Material(records, {0: "anna"})))
    assert text
    if name == "accuracy_cost":
        assert text == "Nothing could be decided: all 6 records are masked (ungraded or failed)."


@pytest.mark.parametrize("name", EVALUATED)
def test_one_question_is_drawn(name: str, record: Make) -> None:
    ours = record("conductor", 0, True, [0], [0], planned=True)
    assert message(draw(name, Material([record("worker:anna", 0, True, [0]), ours]))) == ""


@pytest.mark.parametrize("name", TRAINED)
def test_where_every_rollout_is_masked_a_figure_says_so(name: str, curve_of) -> None:
    nothing = {"masked": 64, "worker_share": {"anna": 0.0}, "topology": {}}
    text = message(draw(name, curve_of(nothing, nothing)))
    assert text.startswith("Nothing could be decided: all 128 rollouts of 2 iterations are masked.")


# ── little or nothing ─────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", FIGURES)
def test_without_any_material_a_figure_says_what_it_lacks(name: str) -> None:
    lack = "No curve of a training" if name in OF_TRAINING else "N"
    assert message(draw(name, Material())).startswith(lack)


WITHOUT = """
worker_rounds   → conductor   → conductor was asked for one round only, so there is none to compare
worker_rounds   → worker:anna → No system of this evaluation plans workflows: it holds workers alone
workflow_length → invalid     → None of the 0 texts that invalid wrote is a workflow.
accuracy_cost   → worker:free → No system used a dollar, a token or a call
"""


@pytest.mark.parametrize("row", WITHOUT.strip().splitlines())
def test_what_there_is_not_is_said_in_words(record: Make, row: str) -> None:
    name, system, text = [part.strip() for part in row.split("→")]
    plans = [] if system == "invalid" else [[0]]
    options = {**UNUSED, "calls": 0} if system == "worker:free" else {}
    only = record(system, 0, True, *plans, planned=system == "conductor", **options)
    drawn = draw(name, Material([only], NAMES, system="invalid" if not plans else ""))
    assert message(drawn).startswith(text)


# ── on paper ──────────────────────────────────────────────────────────────────────────────────────
# ── on paper ──────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", FIGURES)
def test_twenty_workers_with_long_names_stay_on_the_sheet_and_apart(
    name, crowd, long_names, curve_of
) -> None:
    share = {"worker_share": dict.fromkeys(long_names.values(), 0.05)}
    drawn = draw(name, curve_of(*[share] * 12, records=crowd, workers=long_names))
    assert message(drawn) == ""
    renderer, sheet = drawn.figure.canvas.get_renderer(), drawn.figure.bbox
    level: list[Any] = []
    for text in texts(drawn.figure):
        box = text.get_window_extent(renderer)
        assert text.get_fontsize() >= 5
        assert min(box.x0 - sheet.x0, box.y0 - sheet.y0) >= -1, text.get_text()
        assert max(box.x1 - sheet.x1, box.y1 - sheet.y1) <= 1, text.get_text()
        if not text.get_rotation() and text.get_text().strip():
            level.append(box)
    for box, beside in combinations(level, 2):
        across = min(box.x1, beside.x1) - max(box.x0, beside.x0)
        along = min(box.y1, beside.y1) - max(box.y0, beside.y0)
        assert across <= 1 or along <= 0.25 * min(box.height, beside.height)


def texts(figure: Any) -> list[Any]:
    """Everything that is written on a figure and can be seen."""
    written = list(figure.texts)
    for legend in figure.legends:
        written += legend.get_texts()
    panels = [*figure.axes]
    for panel in figure.axes:
        panels += panel.child_axes
    for panel in panels:
        written += [*panel.texts, panel.xaxis.label, panel.yaxis.label, panel.title]
        for axis, limits in ((panel.xaxis, panel.get_xlim()), (panel.yaxis, panel.get_ylim())):
            for tick in axis.get_major_ticks():
                if min(limits) <= tick.get_loc() <= max(limits):
                    written += [tick.label1, tick.label2]
    return [text for text in written if text.get_visible() and text.get_text()]
