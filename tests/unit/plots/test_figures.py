"""What figures show is what records and curves say; where there is little or nothing to draw they say so in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import difference, scores_by_problem, wilson_interval
from openconductor.plots import FIGURES, OF_TRAINING, accuracy_cost, headroom, worker_rounds
from openconductor.plots.iterations import read_curve
from openconductor.plots.material import Material
from openconductor.plots.sheet import text_of

Make = Callable[..., Record]
Write = Callable[..., Path]
NAMES = {0: "anna", 1: "bert"}
EVALUATED = [name for name in FIGURES if name not in OF_TRAINING]
TRAINED = sorted(OF_TRAINING)


def draw(name: str, material: Material) -> Any:
    return import_module(f"openconductor.plots.{name}").plot(material)


def message(figure: Any) -> str:
    return text_of(figure, "message")


def caption(figure: Any) -> str:
    return text_of(figure, "caption")


def legend(figure: Any) -> list[str]:
    (found,) = figure.legends
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


def ticks(panel: Any, axis: str) -> list[str]:
    return [label.get_text() for label in getattr(panel, f"get_{axis}ticklabels")()]


def row_texts(panel: Any) -> list[str]:
    return [text.get_text() for text in panel.texts if text.get_text()]


# ── accuracy against cost ────────────────────────────────────────────────────────────────────────────────────────────
def test_each_system_stands_at_its_cost_and_its_accuracy(evaluation: list[Record]) -> None:
    figure = accuracy_cost.plot(Material(evaluation, NAMES))
    (panel,) = figure.axes
    expected = {"anna": (0.01, 0.5), "bert": (0.001, 0.25), "conductor": (0.02, 0.75), "random": (0.05, 0.25)}
    for name, place in expected.items():
        assert point(panel, name) == pytest.approx(place)
    assert interval(panel, "conductor", 1) == pytest.approx(wilson_interval(3, 4))
    assert panel.get_xscale() == "log"
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("US dollars a question", "right (%)")
    assert legend(figure)[0] == "Pareto front"
    assert "n = 4 questions a system" in caption(figure)
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
    figure = accuracy_cost.plot(Material(records, NAMES))
    assert figure.axes[0].get_xlabel() == "tokens a question"
    assert point(figure.axes[0], "anna")[0] == pytest.approx(100)
    assert "Not in dollars: not every price is known of anna." in caption(figure)


@pytest.mark.parametrize(
    ("records", "unit", "drawn", "said"),
    [
        ([{"dollars": "0"}, {}], "tokens", {"anna", "bert"}, "some cost none: anna."),
        ([{}, {"dollars": "0", "tokens": 0, "calls": 0}], "calls", {"anna"}, "Without calls, so not drawn: bert."),
        ([{}, {"task": "u"}], "US dollars", {"carl"}, "some task, so not drawn: anna, bert."),
    ],
)
def test_what_cannot_be_compared_is_left_out_in_words(
    record: Make, records: Sequence[dict[str, Any]], unit: str, drawn: set[str], said: str
) -> None:
    made = [record(f"worker:{name}", 0, True, [0], **one) for name, one in zip(("anna", "bert"), records, strict=True)]
    if drawn == {"carl"}:
        made += [record("worker:carl", 0, True, [0], task=task) for task in ("t", "u")]
    figure = accuracy_cost.plot(Material(made, NAMES))
    assert figure.axes[0].get_xlabel() == f"{unit} a question"
    assert set(legend(figure)) == {"Pareto front", *drawn}
    assert said in caption(figure)


# ── headroom ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_gain_and_regret_are_paired_differences_to_the_best_worker_and_the_oracle(evaluation: list[Record]) -> None:
    figure = headroom.plot(Material(evaluation, NAMES))
    (panel,) = figure.axes
    assert ticks(panel, "y") == ["conductor", "random"]
    assert widths(panel, "gain") == pytest.approx([0.25, 0])
    assert widths(panel, "loss") == pytest.approx([0, -0.25])
    assert widths(panel, "regret") == pytest.approx([0.25, 0.75])
    assert list(labelled(panel, "upper bound").get_xdata()) == [0.5, 0.5]
    assert row_texts(panel) == ["won", "50 %", "-50 %", "regret", "25.0", "75.0"]
    assert "Zero: the best worker alone, anna, 50.0 % right, chosen on these same questions." in caption(figure)
    assert "Dashed: the oracle, at 50.0 points" in caption(figure)
    found = headroom.measure(Material(evaluation, NAMES))
    assert isinstance(found, headroom.Won)
    of = {name: [one for one in evaluation if one.system == name] for name in ("conductor", "worker:anna")}
    apart = difference(scores_by_problem(of["conductor"]), scores_by_problem(of["worker:anna"]))
    assert apart is not None
    assert (found.gains["conductor"].low, found.gains["conductor"].high) == pytest.approx((apart.low, apart.high))


def test_without_an_oracle_the_bound_is_hindsight_and_with_repeats_it_is_without_luck(evaluation: list[Record]) -> None:
    rest = [one for one in evaluation if one.system != "oracle"]
    once = headroom.measure(Material(rest, NAMES))
    twice = headroom.measure(Material([*rest, *(replace(one, sample=1) for one in rest)], NAMES))
    assert isinstance(once, headroom.Won) and isinstance(twice, headroom.Won)
    assert "in hindsight, luck included" in once.oracle
    assert once.room.value == pytest.approx(0.25)  # anna has two of four, bert one that anna has not
    assert "chosen on its other repeats" in twice.oracle


def test_no_headroom_is_said_and_no_share_of_it_is_made_up(record: Make) -> None:
    records = [record("worker:anna", question, True, [0]) for question in range(3)]
    records += [record("conductor", question, question > 0, [0], planned=True) for question in range(3)]
    figure = headroom.plot(Material(records, NAMES))
    assert row_texts(figure.axes[0]) == ["won", "–", "regret", "33.3"]
    assert "There is no headroom" in caption(figure)


# ── workers ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_heat_maps_hold_accuracy_alone_and_shares_of_steps(evaluation: list[Record]) -> None:
    figure = draw("worker_kind", Material(evaluation, NAMES))
    alone, asked = figure.axes
    assert row_texts(alone) == ["100", "0", "0", "50"]  # anna: easy, hard; bert: easy, hard
    assert row_texts(asked) == ["100", "60", "0", "40"]  # of two easy steps, and of five hard ones
    assert list(asked.collections[0].get_array().ravel()) == pytest.approx([1, 0.6, 0, 0.4])
    assert (ticks(alone, "y"), ticks(alone, "x")) == (["anna", "bert"], ["easy", "hard"])
    assert caption(figure).startswith("n, questions by kind: easy 2, hard 2. 0 records are masked")


def test_a_cell_without_a_decided_answer_is_a_dash(record: Make) -> None:
    records = [record("worker:anna", 0, True, [0], kind="easy"), record("worker:anna", 1, None, [0], kind="hard")]
    figure = draw("worker_kind", Material(records, NAMES))
    assert row_texts(figure.axes[0]) == ["100", "–", "–", "–"]
    assert "1 records are masked" in caption(figure)


def test_shares_of_rounds_hold_first_and_later_steps_apart(record: Make) -> None:
    flows: list[list[list[int] | None]] = [[[0, 0], [1]], [[0, 1], [1, 0]], [[0], []], [[0], None]]
    records = [record("conductor", place, True, *some, planned=True) for place, some in enumerate(flows)]
    material = Material(records, {**NAMES, 2: "carl"})
    found = {first: worker_rounds.shares(material, records, first=first) for first in (True, False)}
    values = {first: {name: one.value for name, one in shares.items()} for first, shares in found.items()}
    assert values[True] == pytest.approx({"anna": 5 / 6, "bert": 1 / 6, "carl": 0})
    assert values[False] == pytest.approx({"anna": 1 / 3, "bert": 2 / 3, "carl": 0})
    figure = draw("worker_rounds", material)
    assert legend(figure) == ["first round", "later rounds"]
    assert caption(figure).startswith(
        "conductor: n = 4 answers, 4 with a later round; of 4 later rounds 2 are new workflows, 1 accept, "
        "1 are no workflow."
    )
    assert "Not shown: 1 of 3 workers, without a step." in caption(figure)


def test_rounds_are_those_of_the_conductor_that_revises_and_of_no_baseline(record: Make) -> None:
    once = record("conductor", 0, True, [0], planned=True)
    twice = record("conductor?rounds=2", 0, True, [0], [1], planned=True)
    baseline = [record("reflection:anna?n=5", question, True, [0], [0]) for question in range(5)]
    assert worker_rounds.recursive(Material([*baseline, once, twice], NAMES)) == "conductor?rounds=2"


def test_the_figures_are_about_the_system_that_is_named(record: Make) -> None:
    records = [record("conductor", 0, True, [0], planned=True), record("best_fixed", 0, True, [0, 1])]
    said = caption(draw("workflow_length", Material(records, NAMES, system="best_fixed")))
    assert said.startswith("best_fixed: n = 1 valid first workflows of 1 questions; nobody wrote them in words.")
    assert caption(draw("workflow_length", Material(records, NAMES))).startswith("conductor: n = 1")
    assert worker_rounds.recursive(Material(records[1:], NAMES, system="best_fixed")) == "best_fixed"


# ── workflows ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_lengths_and_shapes_are_shares_by_kind(evaluation: list[Record]) -> None:
    lengths, shapes = (draw(name, Material(evaluation, NAMES)) for name in ("workflow_length", "topology_kind"))
    (panel,) = lengths.axes
    assert ticks(panel, "y") == ["easy", "hard"]
    assert legend(lengths) == ["1 step", "2 steps", "3 steps"]
    assert [widths(panel, label) for label in legend(lengths)] == [[1, 0], [0, 0.5], [0, 0.5]]
    assert {"1.0", "2.5"} <= set(row_texts(panel))  # the means, of two questions each, so without an interval
    assert caption(lengths).startswith(
        "conductor: n = 4 valid first workflows of 4 questions; 0 of 4 texts were none and are left out."
    )
    assert legend(shapes) == ["single", "chain"]
    assert [widths(shapes.axes[0], label) for label in legend(shapes)] == [[1, 0], [0, 1]]


def test_very_long_workflows_are_drawn_as_one(record: Make) -> None:
    records = [record("conductor", size, True, [0] * size, planned=True) for size in (7, 8, 9, 30, 6)]
    figure = draw("workflow_length", Material(records, NAMES))
    assert legend(figure) == ["6 steps", "7+ steps"]
    assert widths(figure.axes[0], "7+ steps") == [0.8]
    assert "12.0 ± 12.6" in row_texts(figure.axes[0])


def test_texts_that_are_no_workflow_are_counted_in_the_caption(record: Make) -> None:
    records = [record("conductor", 0, False, None, planned=True), record("conductor", 1, True, [0], planned=True)]
    assert "1 of 2 texts were none" in caption(draw("topology_kind", Material(records, NAMES)))


# ── a training ───────────────────────────────────────────────────────────────────────────────────────────────────────
def ramp(values: Sequence[float]) -> list[dict[str, object]]:
    return [{"accuracy": value} for value in values]


def test_the_accuracy_is_the_trailing_mean_and_the_dots_are_single_iterations(write_curve: Write) -> None:
    values = [place / 10 for place in range(10)]
    figure = draw("training_accuracy", Material(curve=read_curve(write_curve(*ramp(values)))))
    dots, means = figure.axes[0].lines
    assert list(dots.get_ydata()) == values
    assert list(means.get_xdata()) == list(range(10))
    expected = [0.0, *((values[place - 1] + values[place]) / 2 for place in range(1, 10))]
    assert list(means.get_ydata()) == pytest.approx(expected)
    assert legend(figure) == ["in training, last 85.0 %"]
    assert "n = 10 iterations of 64 rollouts, 0 masked" in caption(figure)
    assert "No worker alone was evaluated" in caption(figure)


def test_each_worker_alone_is_a_level_with_its_interval(write_curve: Write, evaluation: list[Record]) -> None:
    figure = draw("training_accuracy", Material(evaluation, NAMES, read_curve(write_curve(*ramp([0.5] * 10)))))
    curve, strip = figure.axes
    levels = ["anna 50.0 %", "bert 25.0 %", "oracle 100.0 %", "random 25.0 %"]
    assert legend(figure) == ["in training, last 50.0 %", *levels]
    assert [point(strip, name)[1] for name in levels] == [0.5, 0.25, 1.0, 0.25]
    assert {0.5, 0.25, 1.0} <= {one.get_ydata()[0] for one in curve.lines if len(one.get_ydata()) == 2}
    ((_, low), (_, high)) = labelled(strip, "bert 25.0 %").lines[2][0].get_segments()[0]
    assert (low, high) == pytest.approx(wilson_interval(1, 4))
    assert "on n = 4 evaluation questions, not those of the training" in caption(figure)
    least, most = curve.get_ylim()
    assert -0.1 * most < least < 0, "a marker at zero is whole"


def test_of_many_workers_the_best_eight_have_levels_and_the_others_a_band(
    write_curve: Write, crowd: list[Record], long_names: dict[int, str]
) -> None:
    figure = draw("training_accuracy", Material(crowd, long_names, read_curve(write_curve(*ramp([0.5] * 10)))))
    assert len(figure.axes[1].containers) == 8
    assert any(text.startswith("12 other workers, ") for text in legend(figure))


def test_the_format_gain_shows_validity_beside_accuracy_given_valid_and_entropy(write_curve: Write) -> None:
    lines = [
        {"validity": v, "accuracy": 0.6 * v, "accuracy_given_valid": 0.6, "routing_entropy_bits": e}
        for v, e in ((0.5, 1.0), (0.6, 0.8), (0.8, 0.4), (1.0, 0.0))
    ]
    figure = draw("format_gain", Material(curve=read_curve(write_curve(*lines))))
    above, below = figure.axes
    assert line(above, "validity") == [0.5, 0.6, 0.8, 1.0]
    assert line(above, "accuracy given valid") == [0.6] * 4
    assert line(above, "accuracy") == pytest.approx([0.3, 0.36, 0.48, 0.6])
    assert line(below, "routing entropy") == [1.0, 0.8, 0.4, 0.0]
    assert caption(figure).startswith(
        "From first to last: validity 50.0 % → 100.0 %; accuracy 30.0 % → 60.0 %; accuracy given valid "
        "60.0 % → 60.0 %; routing entropy 1.00 → 0.00 bits. Dashed: all 2 workers alike, 1.00 bits."
    )
    assert "too few for a mean" in caption(figure)


def test_a_gap_stays_a_gap(write_curve: Write) -> None:
    nothing = {"masked": 64, "validity": 0.0, "accuracy": 0.0, "accuracy_given_valid": 0.0}
    figure = draw("format_gain", Material(curve=read_curve(write_curve({}, nothing, {}))))
    first, gap, last = line(figure.axes[0], "accuracy")
    assert first == last == 0.25
    assert math.isnan(gap)
    assert "n = 3 iterations of 64 rollouts, 64 masked" in caption(figure)


def test_the_shares_of_workers_are_drawn_the_largest_last_share_first(write_curve: Write) -> None:
    lines = [{"worker_share": {"anna": 1 - place / 4, "bert": place / 4}} for place in range(4)]
    figure = draw("worker_share", Material(curve=read_curve(write_curve(*lines))))
    assert legend(figure) == ["bert 75.0 %", "anna 25.0 %"]
    assert line(figure.axes[0], "anna 25.0 %") == [1.0, 0.75, 0.5, 0.25]


def test_of_many_workers_the_small_shares_are_added_up(write_curve: Write) -> None:
    shares = {f"w{place}": (place + 1) / 78 for place in range(12)}
    figure = draw("worker_share", Material(curve=read_curve(write_curve({"worker_share": shares}))))
    assert [text.split()[0] for text in legend(figure)] == [*(f"w{place}" for place in range(11, 4, -1)), "5"]
    assert line(figure.axes[0], "5 others together 19.2 %") == pytest.approx([sum(range(1, 6)) / 78])


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
    figure = draw(name, Material(curve=read_curve(write_curve({}))))
    drawn = [line for panel in figure.axes for line in panel.lines if len(line.get_xdata()) == 1]
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
        ("headroom", "conductor", [[0]], "No worker alone (a system worker:NAME) has a decided answer"),
    ],
)
def test_what_there_is_not_is_said_in_words(
    record: Make, name: str, system: str, flows: list[list[int] | None], said: str
) -> None:
    planned = system == "conductor" and bool(flows)
    figure = draw(name, Material([record(system, 0, True, *flows, planned=planned)], NAMES))
    assert message(figure).startswith(said)


def test_one_worker_and_what_used_nothing_are_said_in_words(record: Make, write_curve: Write) -> None:
    curve = read_curve(write_curve({"worker_share": {"anna": 1.0}}))
    assert message(draw("worker_share", Material(curve=curve))) == "There is one worker, anna: it has every step."
    free = [record("worker:anna", 0, True, [0], dollars="0", tokens=0, calls=0)]
    assert message(draw("accuracy_cost", Material(free))).startswith("No system used a dollar, a token or a call")


# ── on paper ─────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", FIGURES)
def test_twenty_workers_with_long_names_stay_on_the_sheet_and_apart(
    name: str, crowd: list[Record], long_names: dict[int, str], write_curve: Write
) -> None:
    share = {"worker_share": dict.fromkeys(long_names.values(), 0.05)}
    figure = draw(name, Material(crowd, long_names, read_curve(write_curve(*[share] * 12))))
    assert message(figure) == ""
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
