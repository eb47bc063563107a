"""What figures show is what records and curves say; where there is little or nothing to draw they say so in words."""

from __future__ import annotations

import math
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
from openconductor.plots.iterations import read_curve, read_terms
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
    """The line, the bars or the point with a label."""
    (found,) = [one for one in (*panel.lines, *panel.containers) if one.get_label() == label]
    return found


def line(panel: Any, label: str) -> list[float]:
    return list(labelled(panel, label).get_ydata())


def ticks(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


# ── an evaluation ─────────────────────────────────────────────────────────────────────────────────
def test_each_system_stands_at_its_cost_and_its_accuracy(evaluation: list[Record]) -> None:
    drawn = draw("accuracy_cost", Material(evaluation, NAMES))
    (panel,) = drawn.figure.axes
    for name, place in {"conductor": (20, 0.75), "random": (50, 0.25)}.items():
        (dot, _, _) = labelled(panel, name).lines
        assert (dot.get_xdata()[0], dot.get_ydata()[0]) == pytest.approx(place)
    (segment,) = labelled(panel, "conductor").lines[2][1].get_segments()
    assert [end[1] for end in segment] == pytest.approx(wilson_interval(3, 4))
    assert (panel.get_xscale(), panel.get_xlabel(), panel.get_ylabel()) == (
        "log",
        DOLLARS,
        "right (%)",
    )
    assert "workers alone (2)" in legend(drawn), "with one look: who they are is in another figure"
    assert "n = 4 questions a system" in drawn.caption
    # The front is a staircase without systems that know the answers.
    front = labelled(panel, "Pareto front")
    assert list(front.get_xdata()) == pytest.approx([1, 10, 20, 50])
    assert list(front.get_ydata()) == pytest.approx([0.25, 0.5, 0.75, 0.75])
    assert list(labelled(panel, "oracle").get_ydata()) == [1.0, 1.0]
    assert "Lines, for they know the answers or the workers: oracle." in drawn.caption


def test_no_marker_lies_on_another_and_what_is_left_out_for_it_is_named(record: Make) -> None:
    right = {
        "conductor": 8,
        "conductor?rounds=2": 8,
        "conductor?access=none": 5,
        "worker:anna": 2,
        "worker:bert": 2,
    }
    records = [
        record(name, place, place < often, [0])
        for name, often in right.items()
        for place in range(10)
    ]
    drawn = draw("accuracy_cost", Material(records, NAMES))
    heights = [float(one.lines[0].get_ydata()[0]) for one in drawn.figure.axes[0].containers]
    assert heights == [0.8, 0.5, 0.2], "the Conductor is above all that is drawn"
    assert "Not drawn, for they would lie on another marker: rounds=2, bert." in drawn.caption
    front = labelled(drawn.figure.axes[0], "Pareto front")
    assert list(front.get_ydata()) == [0.8, 0.8], "without ablations"
    assert "The front is without these." in drawn.caption


def test_without_all_prices_the_cost_is_in_tokens_and_the_caption_says_why(
    evaluation: list[Record],
) -> None:
    first, *rest = evaluation
    unpriced = [replace(first, usage=replace(first.usage, unpriced_calls=1)), *rest]
    drawn = draw("accuracy_cost", Material(unpriced, NAMES))
    assert drawn.figure.axes[0].get_xlabel() == "tokens a question"
    assert "Not in dollars: not every price is known." in drawn.caption


@pytest.mark.parametrize(
    ("records", "unit", "shown", "said"),
    [
        ([{"dollars": "0"}, {}], DOLLARS, 1, "Not drawn, for lack of US dollars or"),
        ([{"dollars": "0"}] * 2, "tokens a question", 2, "Not in dollars: nothing costs any"),
        ([{"dollars": "0", "tokens": 0}] * 2, "calls a question", 2, "Not in dollars"),
        ([{}, {"task": "u"}], DOLLARS, 1, "a decided answer to some task: anna, bert."),
    ],
)
def test_what_cannot_be_compared_is_left_out_in_words(record, records, unit, shown, said) -> None:
    made = [
        record(f"worker:{name}", 0, True, [0], **one)
        for name, one in zip(("anna", "bert"), records, strict=True)
    ]
    if "anna, bert" in said:
        made += [record("worker:carl", 0, True, [0], task=task) for task in ("t", "u")]
    drawn = draw("accuracy_cost", Material(made, NAMES))
    assert drawn.figure.axes[0].get_xlabel() == unit
    assert set(legend(drawn)) == {"Pareto front", f"workers alone ({shown})"}
    assert said in drawn.caption


def test_the_heat_map_holds_the_accuracy_of_each_worker_and_the_conductor_by_kind(
    evaluation, record
) -> None:
    drawn = draw("worker_kind", Material(evaluation, NAMES))
    (panel,) = drawn.figure.axes
    assert (ticks(panel.yaxis), ticks(panel.xaxis)) == (
        ["anna", "bert", "conductor"],
        ["easy", "hard"],
    )
    assert [text.get_text() for text in panel.texts] == ["100", "0", "0", "50", "100", "50"]
    assert list(panel.collections[0].get_array().ravel()) == pytest.approx([1, 0, 0, 0.5, 1, 0.5])
    assert "n, questions: easy 2, hard 2. 0 records are masked" in drawn.caption
    some = [
        record("worker:anna", 0, True, kind="easy"),
        record("worker:anna", 1, None, kind="hard"),
    ]
    assert [
        text.get_text() for text in draw("worker_kind", Material(some)).figure.axes[0].texts
    ] == ["100", "–"]


def test_shares_of_rounds_hold_first_and_later_steps_apart(record: Make) -> None:
    flows: list[list[list[int] | None]] = [[[0, 0], [1]], [[0, 1], [1, 0]], [[0], []], [[0], None]]
    records = [
        record("conductor", place, True, *some, planned=True) for place, some in enumerate(flows)
    ]
    baseline = [record("reflection:anna?n=5", question, True, [0], [0]) for question in range(5)]
    drawn = draw("worker_rounds", Material([*baseline, *records], {**NAMES, 2: "carl"}))
    assert legend(drawn) == ["first round", "later rounds"]
    values = [float(one.lines[0].get_xdata()[0]) for one in drawn.figure.axes[0].containers]
    assert values == pytest.approx([5 / 6, 1 / 6, 1 / 3, 2 / 3])  # anna and bert, first and later
    assert drawn.caption.startswith(
        "conductor: n = 4 answers, 4 with a later round; of 4 later rounds 2 are new workflows, 1 accept, "
        "1 are not a workflow."
    )
    assert "Not shown: 1 of 3 workers" in drawn.caption
    once = record("conductor", 0, True, [0], planned=True)
    twice = record("conductor?rounds=2", 0, True, [0], [1], planned=True)
    assert draw("worker_rounds", Material([once, twice], NAMES)).empty, (
        "a figure is about the Conductor itself"
    )
    named = draw("worker_rounds", Material([once, twice], NAMES, system=twice.system))
    assert named.caption.startswith("rounds=2: n = 1")


def test_lengths_are_shares_by_kind_of_the_system_that_is_named(
    evaluation: list[Record], record: Make
) -> None:
    drawn = draw("workflow_length", Material(evaluation, NAMES))
    (panel,) = drawn.figure.axes
    assert ticks(panel.yaxis) == ["easy", "hard"]
    shares = {
        name: [float(bar.get_width()) for bar in labelled(panel, name).patches]
        for name in legend(drawn)
    }
    assert shares == {"1 step": [1, 0], "2 steps": [0, 0.5], "3 steps": [0, 0.5]}
    assert ticks(panel.child_axes[0].yaxis) == ["n = 2, mean 1.0", "n = 2, mean 2.5"]
    assert drawn.caption.startswith(
        "conductor: n = 4 valid first workflows of 4 questions; 0 of 4 texts were none and are left out."
    )
    records = [
        record("conductor", 0, True, [0], planned=True),
        record("best_fixed", 0, True, [0, 1]),
    ]
    said = draw("workflow_length", Material(records, NAMES, system="best_fixed")).caption
    assert said.startswith(
        "best fixed workflow: n = 1 valid first workflows of 1 questions; nobody wrote them in words."
    )


# ── a training ────────────────────────────────────────────────────────────────────────────────────
def test_a_training_is_drawn_as_trailing_means_with_its_form_its_skill_and_its_routing(
    write_curve: Write,
) -> None:
    values = [0.1 + place / 20 for place in range(10)]
    lines = [
        {"validity": 2 * value, "accuracy": value, "routing_entropy_bits": 1 - value}
        for value in values
    ]
    drawn = draw("training_accuracy", Material(curve=read_curve(write_curve(*lines))))
    above, below = drawn.figure.axes
    words = [
        "validity 105.0 %",
        "accuracy 52.5 %",
        "given valid 50.0 %",
        "routing entropy 0.47 bits",
    ]
    assert legend(drawn) == words
    means = [values[0], *((one + other) / 2 for one, other in pairwise(values))]
    assert line(above, words[1]) == pytest.approx(means)
    assert line(below, words[3]) == pytest.approx([1 - mean for mean in means])
    assert any(list(one.get_ydata()) == values for one in above.lines), "dots are single iterations"
    assert "n = 10 iterations of 64 rollouts, 0 masked" in drawn.caption
    assert "No worker alone was evaluated" in drawn.caption


def test_a_gap_stays_a_gap_and_few_iterations_have_no_mean(write_curve: Write) -> None:
    nothing = {"masked": 64, "validity": 0.0, "accuracy": 0.0, "accuracy_given_valid": 0.0}
    drawn = draw("training_accuracy", Material(curve=read_curve(write_curve(nothing, {}, {}, {}))))
    gap, *values = line(drawn.figure.axes[0], "validity 50.0 %")
    assert math.isnan(gap)
    assert values == [0.5] * 3
    assert "n = 4 iterations of 64 rollouts, 64 masked" in drawn.caption
    assert "too few for a mean" in drawn.caption


def test_the_best_worker_and_the_bounds_are_levels_with_their_intervals(
    write_curve, evaluation
) -> None:
    drawn = draw(
        "training_accuracy", Material(evaluation, NAMES, read_curve(write_curve(*[{}] * 10)))
    )
    above = drawn.figure.axes[0]
    assert {"best worker, anna 50.0 %", "oracle 100.0 %"} <= set(legend(drawn))
    levels = {one.get_ydata()[0] for one in above.lines if len(one.get_ydata()) == 2}
    assert levels == {0.5, 0.25, 1.0}, "bert's line is thin, and not in the legend"
    (star,) = labelled(above, "conductor 75.0 %").lines[0].get_xydata()
    assert list(star) == [9, 0.75], "the Conductor itself, at the end of its training"
    bands = [(patch.get_y(), patch.get_y() + patch.get_height()) for patch in above.patches]
    assert bands[0] == pytest.approx(wilson_interval(2, 4))
    assert "on n = 4 evaluation questions, not those of the training" in drawn.caption


def test_the_untrained_one_stands_where_the_training_begins_and_in_the_heat_map(
    evaluation, record, write_curve
) -> None:
    before = [
        record("untrained", place, place == 0, [0], kind="easy" if place < 2 else "hard")
        for place in range(4)
    ]
    material = Material([*evaluation, *before], NAMES, read_curve(write_curve(*[{}] * 10)))
    (dot,) = (
        labelled(draw("training_accuracy", material).figure.axes[0], "untrained 25.0 %")
        .lines[0]
        .get_xydata()
    )
    assert list(dot) == [0, 0.25]
    assert ticks(draw("worker_kind", material).figure.axes[0].yaxis) == [
        "anna",
        "bert",
        "untrained",
        "conductor",
    ]


def test_a_training_s_kinds_weigh_as_in_the_evaluation_and_what_differs_is_said(
    record, write_curve, tmp_path
) -> None:
    records = [
        record("conductor", place, True, kind="hard" if place else "easy") for place in range(4)
    ]
    line_of = {"accuracy": 0.5, "validity": 0.8, "accuracy_by_kind": {"easy": 1.0, "hard": 0.2}}
    path = write_curve(line_of, line_of)
    drawn = draw(
        "training_accuracy",
        Material(records, NAMES, read_curve(path), terms="Four of the workers."),
    )
    above = drawn.figure.axes[0]
    assert line(above, "accuracy 40.0 %") == pytest.approx(
        [0.4, 0.4]
    )  # an easy one, three hard ones
    assert line(above, "given valid 50.0 %") == pytest.approx([0.5, 0.5])
    assert (
        "Each kind of question weighs as in the evaluation. Four of the workers." in drawn.caption
    )
    other = [replace(one, kind="other") for one in records]
    drawn = draw("training_accuracy", Material(other, NAMES, read_curve(path)))
    assert "mixed in another way than those of the levels" in drawn.caption
    assert "accuracy 50.0 %" in legend(drawn)
    assert read_terms(path) == read_terms(tmp_path) == ""
    (tmp_path / "config.toml").write_text("[rollout]\noffered = [4, 8]\n")
    assert read_terms(tmp_path) == "In the training each question offered 4 to 8 of the workers."


def test_the_shares_of_the_largest_workers_are_drawn_and_all_others_together(
    write_curve: Write,
) -> None:
    lines = [{"worker_share": {"anna": 1 - place / 8, "bert": place / 8}} for place in range(4)]
    drawn = draw("worker_share", Material(curve=read_curve(write_curve(*lines))))
    assert legend(drawn) == ["anna 62.5 %", "bert 37.5 %"]
    assert line(drawn.figure.axes[0], "anna 62.5 %") == [1.0, 0.875, 0.75, 0.625]
    many = {f"w{place}": 0.1 for place in range(10)}
    assert legend(
        draw("worker_share", Material(curve=read_curve(write_curve({"worker_share": many}))))
    )[-1] == ("3 others together 30.0 %")


# ── little or nothing ─────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", FIGURES)
def test_without_any_material_a_figure_says_what_it_lacks(name: str) -> None:
    assert message(draw(name, Material())).startswith(
        "No curve of a training" if name in OF_TRAINING else "N"
    )


@pytest.mark.parametrize("name", EVALUATED)
def test_where_everything_is_masked_or_one_question_was_asked_a_figure_says_so_or_is_drawn(
    name, record
) -> None:
    records = [record("worker:anna", place, None, [0]) for place in range(3)]
    records += [record("conductor", place, None, None, planned=True) for place in range(3)]
    said = message(draw(name, Material(records, {0: "anna"})))
    assert said
    if name == "accuracy_cost":
        assert said == "Nothing could be decided: all 6 records are masked (ungraded or failed)."
    one = [
        record("worker:anna", 0, True, [0]),
        record("conductor", 0, True, [0], [0], planned=True),
    ]
    assert message(draw(name, Material(one, {0: "anna"}))) == ""


@pytest.mark.parametrize("name", TRAINED)
def test_where_every_rollout_is_masked_a_figure_says_so_and_one_iteration_is_drawn_with_a_marker(
    name: str, write_curve: Write
) -> None:
    nothing = {"masked": 64, "worker_share": {"anna": 0.0}, "topology": {}}
    said = message(draw(name, Material(curve=read_curve(write_curve(nothing, nothing)))))
    assert said.startswith("Nothing could be decided: all 128 rollouts of 2 iterations are masked.")
    drawn = draw(name, Material(curve=read_curve(write_curve({}))))
    dots = [
        line for panel in drawn.figure.axes for line in panel.lines if len(line.get_xdata()) == 1
    ]
    assert dots
    assert all(line.get_marker() not in ("None", "", " ") for line in dots)


def test_a_training_that_wrote_no_workflow_is_a_result_and_has_no_shares(
    write_curve: Write,
) -> None:
    invalid = {"validity": 0.0, "accuracy": 0.0, "accuracy_given_valid": 0.0}
    lines = [invalid | {"worker_share": {"anna": 0.0}, "topology": {}}] * 6
    material = Material(curve=read_curve(write_curve(*lines)))
    assert message(draw("worker_share", material)).startswith(
        "No text of 6 iterations was a valid workflow"
    )
    assert message(draw("training_accuracy", material)) == ""


@pytest.mark.parametrize(
    ("name", "system", "flows", "said"),
    [
        (
            "worker_rounds",
            "conductor",
            [[0]],
            "conductor was asked for one round only, so there is none to compare",
        ),
        (
            "worker_rounds",
            "worker:anna",
            [[0]],
            "No system of this evaluation plans workflows: it holds workers alone",
        ),
        (
            "workflow_length",
            "conductor",
            [],
            "None of the 0 texts that conductor wrote is a workflow.",
        ),
        ("accuracy_cost", "worker:free", [[0]], "No system used a dollar, a token or a call"),
    ],
)
def test_what_there_is_not_is_said_in_words(record, name, system, flows, said) -> None:
    free = {"dollars": "0", "tokens": 0, "calls": 0} if system == "worker:free" else {}
    planned = system == "conductor" and bool(flows)
    drawn = draw(name, Material([record(system, 0, True, *flows, planned=planned, **free)], NAMES))
    assert message(drawn).startswith(said)


def test_a_pool_of_one_worker_has_no_shares_to_draw(write_curve: Write) -> None:
    said = message(
        draw(
            "worker_share", Material(curve=read_curve(write_curve({"worker_share": {"anna": 1.0}})))
        )
    )
    assert said.startswith("There is one worker, anna: it has every step.")


# ── on paper ──────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", FIGURES)
def test_twenty_workers_with_long_names_stay_on_the_sheet_and_apart(
    name, crowd, long_names, write_curve
) -> None:
    share = {"worker_share": dict.fromkeys(long_names.values(), 0.05)}
    drawn = draw(name, Material(crowd, long_names, read_curve(write_curve(*[share] * 12))))
    assert message(drawn) == ""
    figure = drawn.figure
    renderer, sheet = figure.canvas.get_renderer(), figure.bbox
    written = [(text, text.get_window_extent(renderer)) for text in texts(figure)]
    for text, box in written:
        assert text.get_fontsize() >= 5
        inside = (
            sheet.x0 - 1 <= box.x0
            and box.x1 <= sheet.x1 + 1
            and sheet.y0 - 1 <= box.y0
            and box.y1 <= sheet.y1 + 1
        )
        assert inside, text.get_text()
    level = [
        (text.get_text(), box)
        for text, box in written
        if not text.get_rotation() and text.get_text().strip()
    ]
    for (one, box), (other, beside) in combinations(level, 2):
        across = min(box.x1, beside.x1) - max(box.x0, beside.x0)
        along = min(box.y1, beside.y1) - max(box.y0, beside.y0)
        assert across <= 1 or along <= 0.25 * min(box.height, beside.height), (one, other)


def texts(figure: Any) -> list[Any]:
    """Everything that is written on a figure and can be seen."""
    found = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    beside = (child for panel in figure.axes for child in panel.child_axes)
    for panel in (*figure.axes, *beside):
        found += [*panel.texts, panel.xaxis.label, panel.yaxis.label, panel.title]
        for axis, limits in ((panel.xaxis, panel.get_xlim()), (panel.yaxis, panel.get_ylim())):
            low, high = sorted(limits)
            shown = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            found += [
                label
                for tick in shown
                for label in (tick.label1, tick.label2)
                if label.get_visible()
            ]
    return [text for text in found if text.get_visible() and text.get_text()]
