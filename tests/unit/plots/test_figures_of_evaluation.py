"""What the figures of an evaluation show is what its records say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import difference, scores_by_problem, wilson_interval
from openconductor.plots import accuracy_cost, headroom, topology_kind, worker_kind, worker_rounds, workflow_length
from openconductor.plots.looks import shade
from openconductor.plots.material import Material
from openconductor.plots.sheet import caption_of

Make = Callable[..., Record]
NAMES = {0: "anna", 1: "bert"}


def places(panel: Any) -> dict[str, tuple[float, float]]:
    """Where each point stands."""
    return {
        one.lines[0].get_gid(): (float(one.lines[0].get_xdata()[0]), float(one.lines[0].get_ydata()[0]))
        for one in panel.containers
        if hasattr(one, "lines") and one.lines[0] is not None
    }


def interval(panel: Any, gid: str, axis: int) -> list[float]:
    """The ends of a point's bar: 0 along x, 1 along y (of points with both)."""
    (found,) = [one for one in panel.containers if one.lines[0] is not None and one.lines[0].get_gid() == gid]
    bar = found.lines[2][axis if len(found.lines[2]) > 1 else 0]
    (segment,) = bar.get_segments()
    return [float(end[axis]) for end in segment]


def widths(panel: Any, row: str) -> list[float]:
    """The segments of a row's bar, by their order."""
    found = {
        patch.get_gid(): patch.get_width() for patch in panel.patches if str(patch.get_gid()).startswith(f"{row}: ")
    }
    return [float(found[f"{row}: {index}"]) for index in range(len(found))]


def row_texts(panel: Any) -> list[str]:
    return [text.get_text() for text in panel.texts]


def legend(figure: Any) -> list[str]:
    (found,) = figure.legends
    return [text.get_text() for text in found.get_texts()]


# ── accuracy against cost ────────────────────────────────────────────────────────────────────────────────────────────
def test_each_system_stands_at_its_cost_and_its_accuracy(evaluation: list[Record]) -> None:
    figure = accuracy_cost.plot(Material(evaluation, NAMES))
    (panel,) = figure.axes
    found = places(panel)
    assert found["worker:anna"] == pytest.approx((0.01, 0.5))
    assert found["worker:bert"] == pytest.approx((0.001, 0.25))
    assert found["conductor"] == pytest.approx((0.02, 0.75))
    assert found["random"] == pytest.approx((0.05, 0.25))
    assert interval(panel, "conductor", 1) == pytest.approx(wilson_interval(3, 4))
    assert panel.get_xscale() == "log"
    assert panel.get_xlabel() == "US dollars a question"
    assert panel.get_ylabel() == "right (%)"
    assert legend(figure)[0] == "Pareto front"
    assert "n = 4 questions a system" in caption_of(figure)


def test_the_front_is_a_staircase_without_systems_that_know_the_answers(evaluation: list[Record]) -> None:
    (panel,) = accuracy_cost.plot(Material(evaluation, NAMES)).axes
    (front,) = [one for one in panel.lines if one.get_gid() == "Pareto front"]
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
    assert places(figure.axes[0])["worker:anna"][0] == pytest.approx(100)
    assert "Not in dollars: not every price is known of anna." in caption_of(figure)


def test_what_costs_nothing_moves_the_axis_to_tokens(record: Make) -> None:
    records = [record("worker:anna", 0, True, [0], dollars="0"), record("worker:bert", 0, True, [1])]
    figure = accuracy_cost.plot(Material(records, NAMES))
    assert figure.axes[0].get_xlabel() == "tokens a question"
    assert "Not in dollars: anna cost none, and the axis has no zero." in caption_of(figure)


def test_a_system_that_used_nothing_is_left_out_in_words(record: Make) -> None:
    records = [
        record("worker:anna", 0, True, [0]),
        record("worker:bert", 0, True, dollars="0", tokens=0, calls=0),
    ]
    figure = accuracy_cost.plot(Material(records, NAMES))
    assert figure.axes[0].get_xlabel() == "calls a question"
    assert set(places(figure.axes[0])) == {"worker:anna"}
    assert "Without a single call, so not drawn: bert." in caption_of(figure)


def test_a_system_that_was_not_asked_every_task_is_not_compared(record: Make) -> None:
    records = [record("worker:anna", 0, True, [0], task=task) for task in ("x", "y")]
    records.append(record("worker:bert", 0, True, [1], task="x"))
    figure = accuracy_cost.plot(Material(records, NAMES))
    assert set(places(figure.axes[0])) == {"worker:anna"}
    assert "Without a decided answer to some task, so not drawn: bert." in caption_of(figure)


# ── headroom ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_gain_and_regret_are_paired_differences_to_the_best_worker_and_the_oracle(evaluation: list[Record]) -> None:
    figure = headroom.plot(Material(evaluation, NAMES))
    (panel,) = figure.axes
    bars = {patch.get_gid(): (patch.get_x(), patch.get_width()) for patch in panel.patches}
    assert bars["conductor: gain"] == pytest.approx((0.0, 0.25))
    assert bars["conductor: regret"] == pytest.approx((0.25, 0.25))
    assert bars["random: gain"] == pytest.approx((0.0, -0.25))
    assert bars["random: regret"] == pytest.approx((-0.25, 0.75))
    (bound,) = [one for one in panel.lines if one.get_gid() == "oracle"]
    assert list(bound.get_xdata()) == [0.5, 0.5]
    assert [label.get_text() for label in panel.get_yticklabels()] == ["conductor", "random"]
    assert row_texts(panel) == ["50 %", "25.0", "−50 %", "75.0", "won", "regret"]
    said = caption_of(figure)
    assert "Zero: the best worker alone, anna, 50.0 % right, chosen on these same questions." in said
    assert "Dashed: the oracle, at 50.0 points" in said


def test_the_whiskers_are_the_intervals_of_the_table(evaluation: list[Record]) -> None:
    found = headroom.measure(Material(evaluation, NAMES))
    assert isinstance(found, headroom.Headroom)
    of = {name: [one for one in evaluation if one.system == name] for name in ("conductor", "worker:anna")}
    apart = difference(scores_by_problem(of["conductor"]), scores_by_problem(of["worker:anna"]))
    assert apart is not None
    assert (found.gains["conductor"].low, found.gains["conductor"].high) == pytest.approx((apart.low, apart.high))


def test_without_an_oracle_the_bound_is_hindsight_and_with_repeats_it_is_without_luck(evaluation: list[Record]) -> None:
    rest = [one for one in evaluation if one.system != "oracle"]
    once = headroom.measure(Material(rest, NAMES))
    assert isinstance(once, headroom.Headroom)
    assert "in hindsight, luck included" in once.oracle
    assert once.room.value == pytest.approx(0.25)  # anna has two of four, bert one that anna has not
    twice = headroom.measure(Material([*rest, *(replace(one, sample=1) for one in rest)], NAMES))
    assert isinstance(twice, headroom.Headroom)
    assert "chosen on its other repeats" in twice.oracle


def test_no_headroom_is_said_and_no_share_of_it_is_made_up(record: Make) -> None:
    records = [record("worker:anna", question, True, [0]) for question in range(3)]
    records += [record("conductor", question, question > 0, [0], planned=True) for question in range(3)]
    figure = headroom.plot(Material(records, NAMES))
    assert row_texts(figure.axes[0])[:2] == ["–", "33.3"]
    assert "There is no headroom" in caption_of(figure)


# ── workers ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_heat_maps_hold_accuracy_alone_and_shares_of_steps(evaluation: list[Record]) -> None:
    figure = worker_kind.plot(Material(evaluation, NAMES))
    alone, asked = figure.axes
    assert row_texts(alone) == ["100", "0", "0", "50"]  # anna: easy, hard; bert: easy, hard
    assert row_texts(asked) == ["100", "60", "0", "40"]  # of two easy steps, and of five hard ones
    colours = {patch.get_gid(): patch.get_facecolor() for patch in asked.patches}
    from matplotlib.colors import to_rgba

    assert colours["conductor: steps (%): 0, 1"] == to_rgba(shade(0.6))
    assert [label.get_text() for label in alone.get_yticklabels()] == ["anna", "bert"]
    assert [label.get_text() for label in alone.get_xticklabels()] == ["easy", "hard"]
    assert caption_of(figure).startswith("n, questions by kind: easy 2, hard 2; 0 records masked")


def test_a_cell_without_a_decided_answer_is_a_dash(record: Make) -> None:
    records = [record("worker:anna", 0, True, [0], kind="easy"), record("worker:anna", 1, None, [0], kind="hard")]
    figure = worker_kind.plot(Material(records, NAMES))
    (alone,) = figure.axes
    assert row_texts(alone) == ["100", "–", "–", "–"]
    assert "1 records masked" in caption_of(figure)


def test_shares_of_rounds_hold_first_and_later_steps_apart(record: Make) -> None:
    records = [
        record("conductor", 0, True, [0, 0], [1], planned=True),
        record("conductor", 1, True, [0, 1], [1, 0], planned=True),
        record("conductor", 2, True, [0], [], planned=True),
        record("conductor", 3, True, [0], None, planned=True),
    ]
    figure = worker_rounds.plot(Material(records, {**NAMES, 2: "carl"}))
    (panel,) = figure.axes
    found = {name: x for name, (x, _) in places(panel).items()}
    assert found == pytest.approx(
        {"anna: first": 5 / 6, "anna: later": 1 / 3, "bert: first": 1 / 6, "bert: later": 2 / 3}
    )
    low, high = interval(panel, "bert: later", 0)
    assert 0 < low < 2 / 3 < high < 1
    assert caption_of(figure).startswith(
        "conductor: n = 4 answers, 4 with a later round; of 4 later rounds 2 are new workflows, 1 accept, "
        "1 are no workflow."
    )
    assert "Not shown: 1 of 3 workers, without a step." in caption_of(figure)


def test_rounds_are_those_of_the_system_that_revises(record: Make) -> None:
    records = [
        record("conductor", 0, True, [0], planned=True),
        record("conductor?rounds=2", 0, True, [0], [1], planned=True),
    ]
    assert worker_rounds.recursive(Material(records, NAMES)) == "conductor?rounds=2"


def test_a_baseline_that_revises_is_no_conductor_with_rounds(record: Make) -> None:
    reflection = [record("reflection:anna?n=5", question, True, [0], [0]) for question in range(5)]
    records = [*reflection, record("conductor", 0, True, [0], [1], planned=True)]
    assert worker_rounds.recursive(Material(records, NAMES)) == "conductor"


def test_the_figures_are_about_the_system_that_is_named(record: Make) -> None:
    records = [record("conductor", 0, True, [0], planned=True), record("best_fixed", 0, True, [0, 1])]
    caption = caption_of(workflow_length.plot(Material(records, NAMES, system="best_fixed")))
    assert caption.startswith("best_fixed: n = 1 valid first workflows of 1 questions; nobody wrote them in words.")
    assert caption_of(workflow_length.plot(Material(records, NAMES))).startswith("conductor: n = 1")
    assert worker_rounds.recursive(Material(records[1:], NAMES, system="best_fixed")) == "best_fixed"


@pytest.mark.parametrize(
    ("flows", "words"),
    [
        ([[0]], "conductor was asked for one round only, so there is none to compare with."),
        ([[0], []], "conductor wrote no new workflow after its first."),
        ([[0], None], "conductor wrote no new workflow after its first."),
    ],
)
def test_where_nothing_was_revised_the_figure_says_so(record: Make, flows: list[list[int] | None], words: str) -> None:
    figure = worker_rounds.plot(Material([record("conductor", 0, True, *flows, planned=True)], NAMES))
    assert [text.replace("\n", " ") for text in row_texts(figure.axes[0])] == [words]


# ── workflows ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_lengths_are_shares_by_kind_with_their_mean(evaluation: list[Record]) -> None:
    figure = workflow_length.plot(Material(evaluation, NAMES))
    (panel,) = figure.axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["easy", "hard"]
    assert widths(panel, "easy") == [1.0, 0.0, 0.0]
    assert widths(panel, "hard") == [0.0, 0.5, 0.5]
    assert legend(figure) == ["1 step", "2 steps", "3 steps"]
    assert "1.0" in row_texts(panel)
    assert "2.5" in row_texts(panel)  # of two questions, so without an interval
    assert caption_of(figure).startswith(
        "conductor: n = 4 valid first workflows of 4 questions; 0 of 4 texts were none and are left out."
    )


def test_very_long_workflows_are_drawn_as_one(record: Make) -> None:
    records = [record("conductor", size, True, [0] * size, planned=True) for size in (7, 8, 9, 30, 6)]
    figure = workflow_length.plot(Material(records, NAMES))
    assert widths(figure.axes[0], "t") == [0.0] * 5 + [0.2, 0.8]
    assert legend(figure)[-1] == "7+ steps"
    assert any(text == "12.0 ± 12.6" for text in row_texts(figure.axes[0]))


def test_shapes_are_shares_by_kind(evaluation: list[Record]) -> None:
    figure = topology_kind.plot(Material(evaluation, NAMES))
    (panel,) = figure.axes
    assert legend(figure) == ["single", "chain"]
    assert widths(panel, "easy") == [1.0, 0.0]
    assert widths(panel, "hard") == [0.0, 1.0]


def test_texts_that_are_no_workflow_are_counted_in_the_caption(record: Make) -> None:
    records = [record("conductor", 0, False, None, planned=True), record("conductor", 1, True, [0], planned=True)]
    assert "1 of 2 texts were none" in caption_of(topology_kind.plot(Material(records, NAMES)))
