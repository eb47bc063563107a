"""The material of figures: systems, parts, looks, names; and the curve of a training."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from openconductor.errors import ConfigError
from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import mean_interval
from openconductor.plots.iterations import read_iterations, smoothed, window_of
from openconductor.plots.material import Material, by_part, in_order, label, labels, look

Make = Callable[..., Record]
Write = Callable[..., Path]


def test_ours_is_the_conductor_else_the_first_that_plans(record: Make) -> None:
    other = record("random", 0, True, [0])
    ours = record("conductor", 0, True, [0], planned=True)
    ablation = record("conductor?rounds=3", 0, True, [0], planned=True)
    assert Material([other, ablation, ours]).ours == "conductor"
    assert Material([other, ablation]).ours == "conductor?rounds=3"
    assert Material([other]).ours == ""


SYSTEMS = ["conductor", "worker:anna", "worker:bert", "random", "best_fixed", "oracle"]


def test_a_worker_looks_the_same_everywhere_and_other_systems_look_like_no_worker(
    record: Make, write_curve: Write
) -> None:
    records = [record(system, 0, True, [0], planned=system == "conductor") for system in SYSTEMS]
    material = Material(records, {0: "anna", 1: "bert"}, read_iterations(write_curve({})))
    assert material.names == ("anna", "bert")
    assert material.look_of("worker:bert") == look(1)
    looks = [material.look_of(system) for system in SYSTEMS]
    assert len({(own["color"], own["marker"]) for own in looks}) == len(SYSTEMS)
    hollow = ["markerfacecolor" in own for own in looks]
    assert hollow == [False, False, False, True, True, True]


def test_workers_without_names_are_called_by_their_numbers(record: Make) -> None:
    unnamed = Material([record("conductor", 0, True, [4, 2], planned=True)])
    assert unnamed.names == ("worker 2", "worker 4")


def test_one_task_is_parted_by_kind_from_easy_to_hard_and_several_by_task(record: Make) -> None:
    hard, easy = record("s", 0, True, kind="hard"), record("s", 1, True, kind="easy")
    assert by_part([hard, easy]) == {"easy": [easy], "hard": [hard]}
    assert list(by_part([hard, record("s", 0, True, task="u")])) == ["t", "u"]
    assert list(by_part([record("s", 0, True)])) == ["t"]


@pytest.mark.parametrize(
    "order", [["single", "pair", "triple", "smudged"], ["level 9", "level 10"]]
)
def test_kinds_stand_in_the_order_of_their_levels(order: list[str]) -> None:
    assert in_order(set(order)) == order


OKABE_ITO = {"#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7"}


def test_the_smallest_parts_are_put_together(record: Make) -> None:
    records: list[Record] = []
    for kind in range(20):
        for copy in range(kind + 1):
            records.append(record("s", f"{kind}/{copy}", True, kind=f"k{kind}"))
    parts = by_part(records)
    assert list(parts) == [*(f"k{kind}" for kind in range(9, 20)), "others"]
    assert len(parts["others"]) == sum(range(10))


def test_seventy_series_look_different_in_colours_that_all_can_tell_apart() -> None:
    looks = [look(place) for place in range(70)]
    assert len({(own["color"], own["marker"]) for own in looks}) == 70
    for own, other in pairwise(looks):
        assert own["color"] != other["color"]
        assert own["marker"] != other["marker"]
    assert {own["color"] for own in looks} <= {*OKABE_ITO, "#595959"}


ZERO = {"validity": 0.0, "accuracy": 0.0, "accuracy_given_valid": 0.0, "routing_entropy_bits": 0.0}

NO_WORKFLOW = ZERO | {"worker_share": {"anna": 0.0, "bert": 0.0}, "topology": {}}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a\x1b[31m\nb\u202e", "a [31m b"),
        ("\n\t", "(no name)"),
        ("_private", "private"),
        ("ä→ 通", "ä→ \\u901a"),
        ("$a$", "$a$"),
        ("consensus:a-vendor-4-large?n=33", "consensus…or-4-large, n=33)"),
    ],
)
def test_a_name_is_short_on_one_line_and_in_letters_that_the_font_has(name: str, text: str) -> None:
    assert label(name) == text


def test_long_names_stay_different() -> None:
    names = [f"{'x' * 30}-{middle}-{'y' * 30}" for middle in ("one", "two", "three")]
    assert len(set(labels(names).values())) == 3


# ── the curve of a training ───────────────────────────────────────────────────────────────────────


def test_what_could_not_be_measured_is_a_gap_and_no_zero(write_curve: Write) -> None:
    masked, invalid = read_iterations(write_curve({"masked": 64, **NO_WORKFLOW}, NO_WORKFLOW))
    assert (masked.validity, masked.accuracy, masked.diversity) == (None, None, None)
    assert (invalid.validity, invalid.accuracy) == (0.0, 0.0)
    for gap in (masked, invalid):
        assert (gap.given_valid, gap.routing_entropy, gap.worker_share) == (None, None, {})


def test_diversity_is_the_effective_number_of_shapes(write_curve: Write) -> None:
    even = {"topology": {"single": 3, "chain": 3, "dag": 3}}
    (diverse,) = read_iterations(write_curve(even))
    assert diverse.diversity == pytest.approx(3)


def test_a_window_is_a_fifth_or_twenty_at_most() -> None:
    windows = [window_of(count) for count in (1, 4, 10, 99, 100, 5000)]
    assert windows == [1, 1, 2, 19, 20, 20]


def test_a_line_that_is_being_written_is_left_out(write_curve: Write) -> None:
    folder = write_curve({}, {})
    with (folder / "curves.jsonl").open("a", encoding="utf-8") as stream:
        stream.write('{"iteration": 2, "rollo')
    assert len(read_iterations(folder)) == 2


@pytest.mark.parametrize(
    "line", ["{}", "[]", "not json", '{"iteration": 0, "rollouts": 1, "masked": null}']
)
def test_a_file_that_is_no_curve_is_an_error_that_names_the_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError, match="expected the folder of a training"):
        read_iterations(tmp_path)
    file = tmp_path / "curves.jsonl"
    file.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="line 1: got"):
        read_iterations(file)


def test_a_mean_looks_back_passes_over_gaps_and_has_students_interval_from_five_values_on() -> None:
    means = [mean for mean, _, _ in smoothed([0.0, None, 1.0, 1.0, None, None], 2)]
    assert means[:5] == [0.0, 0.0, 1.0, 1.0, 1.0]
    assert math.isnan(means[5])
    values = [0.1, 0.2, 0.4, 0.3, 0.5]
    *few, last = smoothed(values, 5)
    assert all(math.isnan(low) for _, low, _ in few)
    assert last[1:] == pytest.approx(mean_interval(values))
