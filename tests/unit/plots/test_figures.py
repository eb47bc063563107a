"""What figures show is what records and curves say; where there is little or nothing to draw they say so in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import difference, scores_by_problem, wilson_interval
from openconductor.plots import FIGURES, OF_TRAINING, draw
from openconductor.plots.iterations import read_curve
from openconductor.plots.material import Material

Make = Callable[..., Record]
Write = Callable[..., Path]
NAMES = {0: "anna", 1: "bert"}
EVALUATED = [name for name in FIGURES if name not in OF_TRAINING]
TRAINED = sorted(OF_TRAINING)


def message(drawn: Any) -> str:
    return drawn.caption if drawn.empty else ""


def ticks(panel: Any, axis: str) -> list[str]:
    return [label.get_text() for label in getattr(panel, f"get_{axis}ticklabels")()]


def legend(drawn: Any) -> list[str]:
    (found,) = drawn.figure.legends
    return [text.get_text() for text in found.get_texts()]


def labelled(panel: Any, label: str) -> Any:
    """The line, the bars or the point with a label."""
    (found,) = [one for one in (*panel.lines, *panel.containers) if one.get_label() == label]
    return found


def line(panel: Any, label: str) -> list[float]:
    return list(labelled(panel, label).get_ydata())


def widths(panel: Any, label: str) -> list[float]:
    return [float(bar.get_width()) for bar in labelled(panel, label).patches]


def point(panel: Any, label: str) -> tuple[float, float]:
    (dot, _, _) = labelled(panel, label).lines
    return float(dot.get_xdata()[0]), float(dot.get_ydata()[0])


def interval(panel: Any, label: str, axis: int) -> list[float]:
    """The ends of a point's bar: 0 along x, 1 along y (of points with both)."""
    bars = labelled(panel, label).lines[2]
    (segment,) = bars[axis if len(bars) > 1 else 0].get_segments()
    return [float(end[axis]) for end in segment]


def row_texts(panel: Any) -> list[str]:
    return [text.get_text() for text in panel.texts if text.get_text()]


# ── accuracy against cost ────────────────────────────────────────────────────────────────────────────────────────────
def test_each_system_stands_at_its_cost_and_its_accuracy(evaluation: list[Record]) -> None:
    drawn = draw("accuracy_cost", Material(evaluation, NAMES))
    (panel,) = drawn.figure.axes
    expected = {"anna": (0.01, 0.5), "bert": (0.001, 0.25), "conductor": (0.02, 0.75), "random": (0.05, 0.25)}
    for name, place in expected.items():
        assert point(panel, name) == pytest.approx(place)
    assert interval(panel, "conductor", 1) == pytest.approx(wilson_interval(3, 4))
    assert panel.get_xscale() == "log"
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("US dollars a question", "right (%)")
    assert legend(drawn)[0] == "Pareto front"
    assert "n = 4 questions a system" in drawn.caption
    # The front is a staircase without systems that know the answers.
    front = labelled(panel, "Pareto front")
    assert list(front.get_xdata()) == pytest.approx([0.001, 0.01, 0.02, 0.05])
    assert list(front.get_ydata()) == pytest.approx([0.25, 0.5, 0.75, 0.75])
    assert front.get_drawstyle() == "steps-post"


def test_without_all_prices_the_cost_is_in_tokens_and_the_caption_says_why(evaluation: list[Record]) -> None:
    records = [
        replace(one, usage=replace(one.usage, unpriced_calls=1)) if one.system == "worker:anna" else one
        for one in evaluation
    ]
    drawn = draw("accuracy_cost", Material(records, NAMES))
    assert drawn.figure.axes[0].get_xlabel() == "tokens a question"
    assert point(drawn.figure.axes[0], "anna")[0] == pytest.approx(100)
    assert "Not in dollars: not every price is known of anna." in drawn.caption


@pytest.mark.parametrize(
    ("records", "unit", "shown", "said"),
    [
        ([{"dollars": "0"}, {}], "tokens", {"anna", "bert"}, "some cost none: anna."),
        ([{}, {"dollars": "0", "tokens": 0, "calls": 0}], "calls", {"anna"}, "Without calls, so not drawn: bert."),
        ([{}, {"task": "u"}], "US dollars", {"carl"}, "some task, so not drawn: anna, bert."),
    ],
)
def test_what_cannot_be_compared_is_left_out_in_words(
    record: Make, records: Sequence[dict[str, Any]], unit: str, shown: set[str], said: str
) -> None:
    made = [record(f"worker:{name}", 0, True, [0], **one) for name, one in zip(("anna", "bert"), records, strict=True)]
    if shown == {"carl"}:
        made += [record("worker:carl", 0, True, [0], task=task) for task in ("t", "u")]
    drawn = draw("accuracy_cost", Material(made, NAMES))
    assert drawn.figure.axes[0].get_xlabel() == f"{unit} a question"
    assert set(legend(drawn)) == {"Pareto front", *shown}
    assert said in drawn.caption


# ── headroom ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_gain_and_regret_are_paired_differences_to_the_best_worker_and_the_oracle(evaluation: list[Record]) -> None:
    drawn = draw("headroom", Material(evaluation, NAMES))
    (panel,) = drawn.figure.axes
    assert ticks(panel, "y") == ["conductor", "random"]
    assert widths(panel, "gain") == pytest.approx([0.25, -0.25])
    assert widths(panel, "regret") == pytest.approx([0.25, 0.75])
    assert list(labelled(panel, "upper bound").get_xdata()) == [0.5, 0.5]
    assert row_texts(panel) == ["won", "50 %", "-50 %", "regret", "25.0", "75.0"]
    assert "Zero: the best worker alone, anna, 50.0 % right, chosen on these same questions." in drawn.caption
    assert "Dashed: the oracle, at 50.0 points" in drawn.caption
    of = {name: [one for one in evaluation if one.system == name] for name in ("conductor", "worker:anna")}
    apart = difference(scores_by_problem(of["conductor"]), scores_by_problem(of["worker:anna"]))
    assert apart is not None
    ((ends,),) = ([segment[:, 0] for segment in bar.get_segments()] for bar in panel.containers[2].lines[2])
    assert list(ends) == pytest.approx([apart.low, apart.high])


def test_without_an_oracle_the_bound_is_hindsight_and_with_repeats_it_is_without_luck(evaluation: list[Record]) -> None:
    rest = [one for one in evaluation if one.system != "oracle"]
    once = draw("headroom", Material(rest, NAMES)).caption
    assert "in hindsight, luck included, at 25.0 points" in once  # anna has two of four, bert one that anna has not
    twice = [*rest, *(replace(one, sample=1) for one in rest)]
    assert "chosen on its other repeats" in draw("headroom", Material(twice, NAMES)).caption


def test_no_headroom_is_said_and_no_share_of_it_is_made_up(record: Make) -> None:
    records = [record("worker:anna", question, True, [0]) for question in range(3)]
    records += [record("conductor", question, question > 0, [0], planned=True) for question in range(3)]
    drawn = draw("headroom", Material(records, NAMES))
    assert row_texts(drawn.figure.axes[0]) == ["won", "–", "regret", "33.3"]
    assert "There is no headroom" in drawn.caption


# ── workers ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_heat_maps_hold_accuracy_alone_and_shares_of_steps(evaluation: list[Record], record: Make) -> None:
    drawn = draw("worker_kind", Material(evaluation, NAMES))
    alone, asked = drawn.figure.axes
    assert row_texts(alone) == ["100", "0", "0", "50"]  # anna: easy, hard; bert: easy, hard
    assert row_texts(asked) == ["100", "60", "0", "40"]  # of two easy steps, and of five hard ones
    assert list(asked.collections[0].get_array().ravel()) == pytest.approx([1, 0.6, 0, 0.4])
    assert (ticks(alone, "y"), ticks(alone, "x")) == (["anna", "bert"], ["easy", "hard"])
    assert drawn.caption.startswith("n, questions by kind: easy 2, hard 2. 0 records are masked")
    one = [record("worker:anna", 0, True, [0], kind="easy"), record("worker:anna", 1, None, [0], kind="hard")]
    drawn = draw("worker_kind", Material(one, NAMES))
    assert row_texts(drawn.figure.axes[0]) == ["100", "–", "–", "–"]
    assert "1 records are masked" in drawn.caption


def test_shares_of_rounds_hold_first_and_later_steps_apart(record: Make) -> None:
    flows: list[list[list[int] | None]] = [[[0, 0], [1]], [[0, 1], [1, 0]], [[0], []], [[0], None]]
    records = [record("conductor", place, True, *some, planned=True) for place, some in enumerate(flows)]
    baseline = [record("reflection:anna?n=5", question, True, [0], [0]) for question in range(5)]
    drawn = draw("worker_rounds", Material([*baseline, *records], {**NAMES, 2: "carl"}))
    assert legend(drawn) == ["first round", "later rounds"]
    values = [float(one.lines[0].get_xdata()[0]) for one in drawn.figure.axes[0].containers]
    assert values == pytest.approx([5 / 6, 1 / 6, 1 / 3, 2 / 3])  # anna and bert, first and later
    assert drawn.caption.startswith(
        "conductor: n = 4 answers, 4 with a later round; of 4 later rounds 2 are new workflows, 1 accept, "
        "1 are no workflow."
    )
    assert "Not shown: 1 of 3 workers, without a step." in drawn.caption
    once = record("conductor", 0, True, [0], planned=True)
    twice = record("conductor?rounds=2", 0, True, [0], [1], planned=True)
    assert draw("worker_rounds", Material([once, twice], NAMES)).caption.startswith("conductor?rounds=2: n = 1")


def test_the_figures_are_about_the_system_that_is_named(record: Make) -> None:
    records = [record("conductor", 0, True, [0], planned=True), record("best_fixed", 0, True, [0, 1])]
    said = draw("workflow_length", Material(records, NAMES, system="best_fixed")).caption
    assert said.startswith("best_fixed: n = 1 valid first workflows of 1 questions; nobody wrote them in words.")
    assert draw("workflow_length", Material(records, NAMES)).caption.startswith("conductor: n = 1")


# ── workflows ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_lengths_and_shapes_are_shares_by_kind(evaluation: list[Record]) -> None:
    lengths, shapes = (draw(name, Material(evaluation, NAMES)) for name in ("workflow_length", "topology_kind"))
    (panel,) = lengths.figure.axes
    assert ticks(panel, "y") == ["easy", "hard"]
    assert legend(lengths) == ["1 step", "2 steps", "3 steps"]
    assert [widths(panel, label) for label in legend(lengths)] == [[1, 0], [0, 0.5], [0, 0.5]]
    assert {"1.0", "2.5"} <= set(row_texts(panel))  # the means, of two questions each, so without an interval
    assert lengths.caption.startswith(
        "conductor: n = 4 valid first workflows of 4 questions; 0 of 4 texts were none and are left out."
    )
    assert legend(shapes) == ["single", "chain"]
    assert [widths(shapes.figure.axes[0], label) for label in legend(shapes)] == [[1, 0], [0, 1]]


# ── a training ───────────────────────────────────────────────────────────────────────────────────────────────────────
def ramp(values: Sequence[float]) -> list[dict[str, object]]:
    return [{"accuracy": value} for value in values]


def test_the_accuracy_is_the_trailing_mean_and_the_dots_are_single_iterations(write_curve: Write) -> None:
    values = [place / 10 for place in range(10)]
    drawn = draw("training_accuracy", Material(curve=read_curve(write_curve(*ramp(values)))))
    dots, means = drawn.figure.axes[0].lines
    assert list(dots.get_ydata()) == values
    assert list(means.get_xdata()) == list(range(10))
    expected = [0.0, *((values[place - 1] + values[place]) / 2 for place in range(1, 10))]
    assert list(means.get_ydata()) == pytest.approx(expected)
    assert legend(drawn) == ["in training, last 85.0 %"]
    assert "n = 10 iterations of 64 rollouts, 0 masked" in drawn.caption
    assert "No worker alone was evaluated" in drawn.caption


def test_each_worker_alone_is_a_level_with_its_interval(write_curve: Write, evaluation: list[Record]) -> None:
    drawn = draw("training_accuracy", Material(evaluation, NAMES, read_curve(write_curve(*ramp([0.5] * 10)))))
    curve, strip = drawn.figure.axes
    levels = ["anna 50.0 %", "bert 25.0 %", "oracle 100.0 %", "random 25.0 %"]
    assert legend(drawn) == ["in training, last 50.0 %", *levels]
    assert [point(strip, name)[1] for name in levels] == [0.5, 0.25, 1.0, 0.25]
    assert {0.5, 0.25, 1.0} <= {one.get_ydata()[0] for one in curve.lines if len(one.get_ydata()) == 2}
    ((_, low), (_, high)) = labelled(strip, "bert 25.0 %").lines[2][0].get_segments()[0]
    assert (low, high) == pytest.approx(wilson_interval(1, 4))
    assert "on n = 4 evaluation questions, not those of the training" in drawn.caption
    least, most = curve.get_ylim()
    assert -0.1 * most < least < 0, "a marker at zero is whole"


def test_of_many_workers_the_best_eight_have_levels_and_the_others_a_band(
    write_curve: Write, crowd: list[Record], long_names: dict[int, str]
) -> None:
    drawn = draw("training_accuracy", Material(crowd, long_names, read_curve(write_curve(*ramp([0.5] * 10)))))
    assert len(drawn.figure.axes[1].containers) == 8
    assert any(text.startswith("12 other workers, ") for text in legend(drawn))


def test_the_format_gain_shows_validity_beside_accuracy_given_valid_and_entropy(write_curve: Write) -> None:
    nothing = {"masked": 64, "validity": 0.0, "accuracy": 0.0, "accuracy_given_valid": 0.0}
    lines = [
        {"validity": v, "accuracy": 0.6 * v, "accuracy_given_valid": 0.6, "routing_entropy_bits": e}
        for v, e in ((0.5, 1.0), (0.6, 0.8), (1.0, 0.0))
    ]
    drawn = draw("format_gain", Material(curve=read_curve(write_curve(nothing, *lines))))
    above, below = drawn.figure.axes
    words = ("validity 100.0 %", "accuracy 60.0 %", "accuracy given valid 60.0 %", "routing entropy 0.00 bits")
    assert legend(drawn) == list(words)
    gap, *values = line(above, "validity 100.0 %")
    assert math.isnan(gap), "a gap stays a gap"
    assert values == [0.5, 0.6, 1.0]
    assert line(above, "accuracy given valid 60.0 %")[1:] == [0.6] * 3
    assert line(above, "accuracy 60.0 %")[1:] == pytest.approx([0.3, 0.36, 0.6])
    assert line(below, "routing entropy 0.00 bits")[1:] == [1.0, 0.8, 0.0]
    assert "n = 4 iterations of 64 rollouts, 64 masked" in drawn.caption
    assert "too few for a mean" in drawn.caption


def test_the_shares_of_workers_are_drawn_the_largest_last_share_first(write_curve: Write) -> None:
    lines = [{"worker_share": {"anna": 1 - place / 4, "bert": place / 4}} for place in range(4)]
    drawn = draw("worker_share", Material(curve=read_curve(write_curve(*lines))))
    assert legend(drawn) == ["bert 75.0 %", "anna 25.0 %"]
    assert line(drawn.figure.axes[0], "anna 25.0 %") == [1.0, 0.75, 0.5, 0.25]


# ── little or nothing ────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", FIGURES)
def test_without_any_material_a_figure_says_what_it_lacks(name: str) -> None:
    expected = "No curve of a training" if name in OF_TRAINING else "No "
    assert message(draw(name, Material())).startswith(expected)


@pytest.mark.parametrize("name", EVALUATED)
def test_where_everything_is_masked_or_one_question_was_asked_a_figure_says_so_or_is_drawn(
    name: str, record: Make
) -> None:
    records = [record("worker:anna", place, None, [0]) for place in range(3)]
    records += [record("conductor", place, None, None, planned=True) for place in range(3)]
    said = message(draw(name, Material(records, {0: "anna"})))
    assert said
    if name == "accuracy_cost":
        assert said == "Nothing could be decided: all 6 records are masked (ungraded or failed)."
    one = [record("worker:anna", 0, True, [0]), record("conductor", 0, True, [0], [0], planned=True)]
    assert message(draw(name, Material(one, {0: "anna"}))) == ""


@pytest.mark.parametrize("name", TRAINED)
def test_where_every_rollout_is_masked_a_figure_says_so_and_one_iteration_is_drawn_with_a_marker(
    name: str, write_curve: Write
) -> None:
    nothing = {"masked": 64, "worker_share": {"anna": 0.0}, "topology": {}}
    said = message(draw(name, Material(curve=read_curve(write_curve(nothing, nothing)))))
    assert said.startswith("Nothing could be decided: all 128 rollouts of 2 iterations are masked.")
    drawn = draw(name, Material(curve=read_curve(write_curve({}))))
    drawn = [line for panel in drawn.figure.axes for line in panel.lines if len(line.get_xdata()) == 1]
    assert drawn
    assert all(line.get_marker() not in ("None", "", " ") for line in drawn)


def test_a_training_that_wrote_no_workflow_is_a_result_and_has_no_shares(write_curve: Write) -> None:
    invalid = {"validity": 0.0, "accuracy": 0.0, "accuracy_given_valid": 0.0}
    lines = [invalid | {"worker_share": {"anna": 0.0}, "topology": {}}] * 6
    material = Material(curve=read_curve(write_curve(*lines)))
    said = {name: message(draw(name, material)) for name in TRAINED}
    assert said.pop("worker_share").startswith("No text of 6 iterations was a valid workflow")
    assert set(said.values()) == {""}


@pytest.mark.parametrize(
    ("name", "system", "flows", "said"),
    [
        ("worker_rounds", "conductor", [[0]], "conductor was asked for one round only, so there is none to compare"),
        ("worker_rounds", "conductor", [[0], []], "conductor wrote no new workflow after its first."),
        ("worker_rounds", "conductor", [[0], None], "conductor wrote no new workflow after its first."),
        ("worker_rounds", "worker:anna", [[0]], "No system of this evaluation plans workflows: it holds workers alone"),
        ("workflow_length", "worker:anna", [[0]], "No system of this evaluation plans workflows"),
        ("topology_kind", "worker:anna", [[0]], "No system of this evaluation plans workflows"),
        ("topology_kind", "conductor", [], "None of the 0 texts that conductor wrote is a workflow."),
        ("headroom", "conductor", [[0]], "No worker alone (worker:NAME) has a decided answer"),
    ],
)
def test_what_there_is_not_is_said_in_words(
    record: Make, name: str, system: str, flows: list[list[int] | None], said: str
) -> None:
    planned = system == "conductor" and bool(flows)
    drawn = draw(name, Material([record(system, 0, True, *flows, planned=planned)], NAMES))
    assert message(drawn).startswith(said)


def test_one_worker_and_what_used_nothing_are_said_in_words(record: Make, write_curve: Write) -> None:
    curve = read_curve(write_curve({"worker_share": {"anna": 1.0}}))
    assert message(draw("worker_share", Material(curve=curve))).startswith(
        "There is one worker, anna: it has every step."
    )
    free = [record("worker:anna", 0, True, [0], dollars="0", tokens=0, calls=0)]
    assert message(draw("accuracy_cost", Material(free))).startswith("No system used a dollar, a token or a call")


# ── on paper ─────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", FIGURES)
def test_twenty_workers_with_long_names_stay_on_the_sheet_and_apart(
    name: str, crowd: list[Record], long_names: dict[int, str], write_curve: Write
) -> None:
    share = {"worker_share": dict.fromkeys(long_names.values(), 0.05)}
    drawn = draw(name, Material(crowd, long_names, read_curve(write_curve(*[share] * 12))))
    assert message(drawn) == ""
    figure = drawn.figure
    renderer, sheet = figure.canvas.get_renderer(), figure.bbox
    written = [(text, text.get_window_extent(renderer)) for text in texts(figure)]
    for text, box in written:
        assert text.get_fontsize() >= 5
        inside = sheet.x0 - 1 <= box.x0 and box.x1 <= sheet.x1 + 1 and sheet.y0 - 1 <= box.y0 and box.y1 <= sheet.y1 + 1
        assert inside, text.get_text()
    level = [(text.get_text(), box) for text, box in written if not text.get_rotation() and text.get_text().strip()]
    for (one, box), (other, beside) in combinations(level, 2):
        across = min(box.x1, beside.x1) - max(box.x0, beside.x0)
        along = min(box.y1, beside.y1) - max(box.y0, beside.y0)
        assert across <= 1 or along <= 0.25 * min(box.height, beside.height), (one, other)


def texts(figure: Any) -> list[Any]:
    """Everything that is written on a figure and can be seen."""
    found = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    for panel in figure.axes:
        found += [*panel.texts, panel.xaxis.label, panel.yaxis.label, panel.title]
        for axis, limits in ((panel.xaxis, panel.get_xlim()), (panel.yaxis, panel.get_ylim())):
            low, high = sorted(limits)
            shown = [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            found += [label for label in shown if axis.get_tick_params().get("labelleft", True)]
    return [text for text in found if text.get_visible() and text.get_text()]
