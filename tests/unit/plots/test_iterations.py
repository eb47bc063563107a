"""The curve of a training, read for figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from openconductor.errors import ConfigError
from openconductor.evaluation.intervals import mean_interval
from openconductor.gym.bundled import bundled_folder
from openconductor.plots.iterations import Smoothed, read_curve, smoothed, window_of

Write = Callable[..., Path]


def test_the_record_of_the_bundled_training_is_read_whole() -> None:
    curve = read_curve(bundled_folder() / "run")
    assert [iteration.number for iteration in curve] == list(range(410))
    assert curve[-1].accuracy == 0.7890625
    assert curve[-1].worker_share["converter"] == pytest.approx(0.3032, abs=1e-4)


def test_what_could_not_be_measured_is_a_gap_and_no_zero(write_curve: Write) -> None:
    empty = {"anna": 0.0, "bert": 0.0}
    nothing = {"worker_share": empty, "topology": {}, "routing_entropy_bits": 0.0}
    masked, invalid = read_curve(
        write_curve(
            {"masked": 64, "validity": 0.0, "accuracy": 0.0, "accuracy_given_valid": 0.0, **nothing},
            {"validity": 0.0, "accuracy": 0.0, "accuracy_given_valid": 0.0, **nothing},
        )
    )
    assert (masked.validity, masked.accuracy, masked.given_valid, masked.routing_entropy) == (None, None, None, None)
    assert (invalid.validity, invalid.accuracy, invalid.given_valid, invalid.routing_entropy) == (0.0, 0.0, None, None)
    assert masked.worker_share == invalid.worker_share == {}
    assert masked.diversity is None


def test_diversity_is_the_effective_number_of_shapes(write_curve: Write) -> None:
    even, one = read_curve(write_curve({"topology": {"single": 3, "chain": 3, "dag": 3}}, {"topology": {"chain": 9}}))
    assert even.diversity == pytest.approx(3)
    assert one.diversity == 1


def test_a_line_that_is_being_written_is_left_out(write_curve: Write) -> None:
    folder = write_curve({}, {})
    with (folder / "curves.jsonl").open("a", encoding="utf-8") as stream:
        stream.write('{"iteration": 2, "rollo')
    assert len(read_curve(folder)) == 2


@pytest.mark.parametrize("line", ["{}", "[]", "not json", '{"iteration": 0, "rollouts": 1, "masked": null}'])
def test_a_file_that_is_no_curve_is_an_error_that_names_the_line(tmp_path: Path, line: str) -> None:
    file = tmp_path / "curves.jsonl"
    file.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="line 1: got"):
        read_curve(file)


def test_a_folder_without_a_curve_is_an_error_that_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected the folder of a training"):
        read_curve(tmp_path)
    assert read_curve_of_nothing(tmp_path) == ()


def read_curve_of_nothing(folder: Path) -> object:
    (folder / "curves.jsonl").write_text("")
    return read_curve(folder)


def test_the_window_is_a_fifth_of_a_short_curve_and_twenty_of_a_long_one() -> None:
    assert [window_of(count) for count in (1, 4, 10, 99, 100, 5000)] == [1, 1, 2, 19, 20, 20]


def test_a_mean_looks_back_and_passes_over_gaps() -> None:
    values = [0.0, None, 1.0, 1.0, None, None, None]
    assert smoothed(values, 2) == [
        Smoothed(0.0, None),
        Smoothed(0.0, None),
        Smoothed(1.0, None),
        Smoothed(1.0, None),
        Smoothed(1.0, None),
        None,
        None,
    ]


def test_a_mean_of_five_values_and_more_has_students_interval() -> None:
    values = [0.1, 0.2, 0.4, 0.3, 0.5]
    last = smoothed(values, 5)[-1]
    assert last is not None
    assert last.half is not None
    assert (last.mean - last.half, last.mean + last.half) == pytest.approx(mean_interval(values))
