"""Little or nothing to draw: a figure says so in words; it never crashes and never looks like a result."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from openconductor.evaluation.records import Record
from openconductor.plots import FIGURES, OF_TRAINING
from openconductor.plots.iterations import read_curve
from openconductor.plots.material import Material

Make = Callable[..., Record]
Write = Callable[..., Path]
EVALUATED = [name for name in FIGURES if name not in OF_TRAINING]
TRAINED = sorted(OF_TRAINING)


def draw(name: str, results: Material) -> Any:
    return import_module(f"openconductor.plots.{name}").plot(results)


def message(figure: Any) -> str:
    """What a figure says instead of showing something; "" where it shows something."""
    texts = [text for panel in figure.axes for text in panel.texts if text.get_gid() == "message"]
    return " ".join(text.get_text() for text in texts).replace("\n", " ")


@pytest.mark.parametrize("name", FIGURES)
def test_without_any_material_a_figure_says_what_it_lacks(name: str) -> None:
    expected = "No curve of a training" if name in OF_TRAINING else "No "
    assert message(draw(name, Material())).startswith(expected)


@pytest.mark.parametrize("name", EVALUATED)
def test_where_everything_is_masked_a_figure_says_so(name: str, record: Make) -> None:
    records = [record("worker:anna", place, None, [0]) for place in range(3)]
    records += [record("conductor", place, None, None, planned=True) for place in range(3)]
    said = message(draw(name, Material(records, {0: "anna"})))
    assert said
    if name == "accuracy_cost":
        assert said == "Nothing could be decided: all 6 records are masked (ungraded or failed)."


@pytest.mark.parametrize("name", TRAINED)
def test_where_every_rollout_is_masked_a_figure_says_so(name: str, write_curve: Write) -> None:
    nothing = {"masked": 64, "worker_share": {"anna": 0.0}, "topology": {}}
    said = message(draw(name, Material(curve=read_curve(write_curve(nothing, nothing)))))
    assert said.startswith("Nothing could be decided: all 128 rollouts of 2 iterations are masked.")


@pytest.mark.parametrize("name", ["worker_share", "diversity"])
def test_where_no_text_was_a_workflow_a_figure_says_so(name: str, write_curve: Write) -> None:
    invalid = {"validity": 0.0, "accuracy": 0.0, "worker_share": {"anna": 0.0}, "topology": {}}
    assert message(draw(name, Material(curve=read_curve(write_curve(invalid))))).startswith("No text of 1 iterations")


@pytest.mark.parametrize("name", ["training_accuracy", "format_gain"])
def test_a_training_that_wrote_no_workflow_is_a_result(name: str, write_curve: Write) -> None:
    invalid = {"validity": 0.0, "accuracy": 0.0, "accuracy_given_valid": 0.0}
    lines = [invalid | {"worker_share": {"anna": 0.0}, "topology": {}}] * 6
    assert message(draw(name, Material(curve=read_curve(write_curve(*lines))))) == ""


@pytest.mark.parametrize("name", TRAINED)
def test_one_iteration_is_drawn_with_a_marker(name: str, write_curve: Write) -> None:
    figure = draw(name, Material(curve=read_curve(write_curve({}))))
    drawn = [line for panel in figure.axes for line in panel.lines if len(line.get_xdata()) == 1]
    assert drawn
    assert all(line.get_marker() not in ("None", "", " ") for line in drawn)


@pytest.mark.parametrize("name", EVALUATED)
def test_one_question_of_one_worker_is_drawn_or_said(name: str, record: Make) -> None:
    records = [record("worker:anna", 0, True, [0]), record("conductor", 0, True, [0], [0], planned=True)]
    assert message(draw(name, Material(records, {0: "anna"}))) == ""


@pytest.mark.parametrize("name", ["workflow_length", "topology_kind", "worker_rounds"])
def test_workers_and_baselines_alone_have_no_workflows_of_their_own(name: str, record: Make) -> None:
    said = message(draw(name, Material([record("worker:anna", 0, True, [0])], {0: "anna"})))
    assert said == "No system of this evaluation plans workflows: it holds workers alone and baselines."


@pytest.mark.parametrize("name", ["workflow_length", "topology_kind"])
def test_a_conductor_that_was_never_reached_is_not_called_a_baseline(name: str, record: Make) -> None:
    said = message(draw(name, Material([record("conductor", 0, None)], {0: "anna"})))
    assert said == "None of the 0 texts that conductor wrote is a workflow."


def test_what_used_nothing_has_no_cost_to_compare(record: Make) -> None:
    records = [record("worker:anna", 0, True, [0], dollars="0", tokens=0, calls=0)]
    assert message(draw("accuracy_cost", Material(records))).startswith("No system used a dollar, a token or a call")


@pytest.mark.parametrize("name", FIGURES)
def test_twenty_workers_with_long_names_stay_on_the_sheet_and_apart(
    name: str, crowd: list[Record], long_names: dict[int, str], write_curve: Write
) -> None:
    share = {"worker_share": dict.fromkeys(long_names.values(), 0.05)}
    figure = draw(name, Material(crowd, long_names, read_curve(write_curve(*[share] * 12))))
    assert message(figure) == ""
    renderer = figure.canvas.get_renderer()
    sheet = figure.bbox
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
        if not panel.axison:
            continue
        found += [*panel.texts, panel.xaxis.label, panel.yaxis.label, panel.title]
        for axis, limits in ((panel.xaxis, panel.get_xlim()), (panel.yaxis, panel.get_ylim())):
            low, high = sorted(limits)
            found += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return [text for text in found if text.get_visible() and text.get_text()]
