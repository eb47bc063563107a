"""What figures ask of their material: who is who, parts, looks, names; and the curve of a training."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from openconductor.errors import ConfigError
from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import mean_interval
from openconductor.gym.bundled import bundled_folder
from openconductor.plots.iterations import read_curve, smoothed, window_of
from openconductor.plots.material import Material, by_part, in_order, label, labels, look

Make = Callable[..., Record]
Write = Callable[..., Path]


def test_ours_is_the_conductor_else_the_first_that_plans(record: Make) -> None:
    ablation, ours = (
        record(name, 0, True, [0], planned=True) for name in ("conductor?rounds=3", "conductor")
    )
    other = record("random", 0, True, [0])
    assert Material([other, ablation, ours]).ours == "conductor"
    assert Material([other, ablation]).ours == "conductor?rounds=3"
    assert Material([other]).ours == ""


def test_a_worker_looks_the_same_in_records_and_curve_and_other_systems_look_like_no_worker(
    record: Make, write_curve: Write
) -> None:
    systems = ["conductor", "worker:anna", "worker:bert", "random", "best_fixed", "oracle"]
    records = [record(system, 0, True, (0,), planned=system == "conductor") for system in systems]
    material = Material(records, {0: "anna", 1: "bert"}, read_curve(write_curve({})))
    assert material.names == ("anna", "bert")
    assert material.look_of("worker:bert") == look(1)
    looks = [material.look_of(system) for system in systems]
    assert len({(one["color"], one["marker"]) for one in looks}) == len(systems)
    assert ["markerfacecolor" in one for one in looks] == [False, False, False, True, True, True]
    assert Material([record("conductor", 0, True, [4, 2], planned=True)]).names == (
        "worker 2",
        "worker 4",
    )


def test_one_task_is_parted_by_kind_from_easy_to_hard_and_several_by_task(record: Make) -> None:
    records = [record("s", 0, True, kind="hard"), record("s", 1, True, kind="easy")]
    assert {name: len(part) for name, part in by_part(records).items()} == {"easy": 1, "hard": 1}
    assert list(by_part([*records, record("s", 0, True, task="u")])) == ["t", "u"]
    assert list(by_part([record("s", 0, True)])) == ["t"]
    assert in_order({"triple", "single", "smudged", "pair"}) == [
        "single",
        "pair",
        "triple",
        "smudged",
    ]
    assert in_order({"level 10", "level 9"}) == ["level 9", "level 10"]
    many = [
        record("s", f"{kind}/{copy}", True, kind=f"k{kind}")
        for kind in range(20)
        for copy in range(kind + 1)
    ]
    found = by_part(many)
    assert list(found) == [*(f"k{kind}" for kind in range(9, 20)), "others"], (
        "the smallest are put together"
    )
    assert sum(map(len, found.values())) == len(many)


def test_seventy_series_look_different_in_colours_that_all_can_tell_apart() -> None:
    looks = [look(place) for place in range(70)]
    assert len({(one["color"], one["marker"]) for one in looks}) == 70
    assert all(
        one["color"] != other["color"] and one["marker"] != other["marker"]
        for one, other in pairwise(looks)
    )
    okabe_ito = {
        "#000000",
        "#E69F00",
        "#56B4E9",
        "#009E73",
        "#F0E442",
        "#0072B2",
        "#D55E00",
        "#CC79A7",
    }
    assert {one["color"] for one in looks} <= {*okabe_ito, "#595959"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a\x1b[31m\nb\u202e", "a [31m b"),
        ("\n\t", "(no name)"),
        ("_private", "private"),
        ("ä→ 通", "ä→ \\u901a"),
        ("$a$", "$a$"),
        ("smoothie?mode=dependent", "smoot…?mode=dependent"),
    ],
)
def test_a_name_is_short_on_one_line_and_in_letters_that_the_font_has(name: str, said: str) -> None:
    assert label(name) == said


def test_long_names_stay_different() -> None:
    names = [f"{'x' * 30}-{middle}-{'y' * 30}" for middle in ("one", "two", "three")]
    assert len({*labels(names).values()}) == 3


def test_the_record_of_the_bundled_training_is_read_whole() -> None:
    curve = read_curve(bundled_folder() / "run")
    assert [iteration.number for iteration in curve] == list(range(168))
    assert curve[-1].accuracy == 0.61328125
    assert curve[-1].worker_share["converter"] == pytest.approx(0.1598, abs=1e-4)


def test_what_could_not_be_measured_is_a_gap_and_no_zero(write_curve: Write) -> None:
    nothing = {
        "worker_share": {"anna": 0.0, "bert": 0.0},
        "topology": {},
        "routing_entropy_bits": 0.0,
    }
    zero = {"validity": 0.0, "accuracy": 0.0, "accuracy_given_valid": 0.0, **nothing}
    even = {"topology": {"single": 3, "chain": 3, "dag": 3}}
    masked, invalid, diverse = read_curve(write_curve({"masked": 64, **zero}, zero, even))
    assert (masked.validity, masked.accuracy, masked.given_valid, masked.routing_entropy) == (
        None,
        None,
        None,
        None,
    )
    assert (invalid.validity, invalid.accuracy, invalid.given_valid, invalid.routing_entropy) == (
        0.0,
        0.0,
        None,
        None,
    )
    assert masked.worker_share == invalid.worker_share == {}
    assert (masked.diversity, diverse.diversity) == (None, pytest.approx(3)), (
        "the effective number of shapes"
    )


def test_a_line_that_is_being_written_is_left_out(write_curve: Write) -> None:
    folder = write_curve({}, {})
    with (folder / "curves.jsonl").open("a", encoding="utf-8") as stream:
        stream.write('{"iteration": 2, "rollo')
    assert len(read_curve(folder)) == 2


@pytest.mark.parametrize(
    "line", ["{}", "[]", "not json", '{"iteration": 0, "rollouts": 1, "masked": null}']
)
def test_a_file_that_is_no_curve_is_an_error_that_names_the_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError, match="expected the folder of a training"):
        read_curve(tmp_path)
    file = tmp_path / "curves.jsonl"
    file.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="line 1: got"):
        read_curve(file)


def test_a_mean_looks_back_passes_over_gaps_and_has_students_interval_from_five_values_on() -> None:
    assert [window_of(count) for count in (1, 4, 10, 99, 100, 5000)] == [1, 1, 2, 19, 20, 20]
    means = [mean for mean, _, _ in smoothed([0.0, None, 1.0, 1.0, None, None, None], 2)]
    assert means[:5] == [0.0, 0.0, 1.0, 1.0, 1.0]
    assert all(map(math.isnan, means[5:]))
    values = [0.1, 0.2, 0.4, 0.3, 0.5]
    *few, last = smoothed(values, 5)
    assert all(math.isnan(low) for _, low, _ in few)
    assert last[1:] == pytest.approx(mean_interval(values))
