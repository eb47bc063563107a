"""Figures as files: the same bytes for the same numbers, whoever draws them, and nothing half-written."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from hashlib import sha256
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from openconductor.errors import ConfigError, JournalError
from openconductor.evaluation.records import Record
from openconductor.gym.bundled import bundled_folder
from openconductor.plots import FIGURES, OF_TRAINING, Material, draw, rendered, save_all
from openconductor.plots.iterations import read_curve

NAMES = {0: "anna", 1: "bert"}
DRAW = """
import sys, hashlib
from openconductor.gym.bundled import bundled_folder
from openconductor.plots import OF_TRAINING, Material, draw, rendered
print("lazy" if "matplotlib" not in sys.modules else "eager")
from openconductor.plots.iterations import read_curve
material = Material(curve=read_curve(bundled_folder() / "run"))
for name in sorted(OF_TRAINING):
    print(hashlib.sha256(rendered(draw(name, material), "svg")).hexdigest())
print("pyplot" if "matplotlib.pyplot" in sys.modules else "no pyplot")
"""


def test_every_figure_that_there_is_material_for_is_written_as_svg_and_png(
    evaluation, tmp_path
) -> None:
    folder = tmp_path / "new" / "folder"
    pictures = save_all(evaluation, folder, bundled_folder() / "run", workers=NAMES)
    assert list(pictures) == list(FIGURES)
    files = {path for picture in pictures.values() for path in (picture.svg, picture.png)}
    assert (
        set(folder.iterdir())
        == files
        == {folder / f"{name}.{form}" for name in FIGURES for form in ("svg", "png")}
    )
    assert all(
        path.read_bytes().startswith(b"\x89PNG" if path.suffix == ".png" else b"<?xml")
        for path in files
    )
    assert pictures["worker_kind"].title == "Right answers by kind of question"
    assert [name for name, picture in pictures.items() if picture.empty] == ["worker_rounds"]
    assert pictures["worker_rounds"].caption.startswith("conductor was asked for one round only")
    assert set(save_all(evaluation, tmp_path)) == set(FIGURES) - OF_TRAINING
    with pytest.raises(ConfigError, match="got no record and no curve"):
        save_all([], tmp_path)


def test_equal_records_give_equal_bytes_however_often_and_in_however_many_threads_they_are_written(
    evaluation,
) -> None:
    names = ("worker_kind", "workflow_length", "accuracy_cost")

    def work(found: list[bytes]) -> None:
        drawn = [draw(name, Material(list(evaluation), NAMES)) for name in names]
        found += [rendered(one, form) for one in drawn for form in ("png", "svg", "svg")]

    work(alone := [])
    assert alone[1::3] == alone[2::3], "a figure that is written again lays itself out as before"
    beside: list[list[bytes]] = [[], []]
    threads = [threading.Thread(target=work, args=(found,)) for found in beside]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert beside == [alone] * 2


def test_two_processes_with_other_hash_seeds_draw_the_same_and_neither_needs_pyplot() -> None:
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    command, environment = [sys.executable, "-c", DRAW], {**os.environ, "PYTHONHASHSEED": seed}
    other = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    ).stdout
    material = Material(curve=read_curve(bundled_folder() / "run"))
    here = [
        sha256(rendered(draw(name, material), "svg")).hexdigest() for name in sorted(OF_TRAINING)
    ]
    assert other.splitlines() == ["lazy", *here, "no pyplot"]


def test_a_file_names_no_date_and_no_version_carries_its_caption_and_survives_odd_names(
    evaluation, record
) -> None:
    import matplotlib as mpl

    odd = [record("worker:\x1b[31m<b>&\u202e", question, True, [0]) for question in range(4)]
    drawn = draw("accuracy_cost", Material([*evaluation, *odd], NAMES))
    svg = rendered(drawn, "svg").decode()
    ET.fromstring(svg)
    assert "dc:date" not in svg
    assert mpl.__version__ not in svg.partition("<defs>")[0]
    assert f"<title>{drawn.title}</title>" in svg
    assert drawn.caption[:40] in svg
    assert mpl.__version__.encode() not in rendered(drawn, "png")


def test_the_users_own_settings_change_no_figure_and_stay_as_they_were(
    evaluation: list[Record],
) -> None:
    import matplotlib as mpl

    before = rendered(draw("worker_kind", Material(evaluation, NAMES)), "svg")
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "black", "svg.hashsalt": None}):
        inside = rendered(draw("worker_kind", Material(evaluation, NAMES)), "svg")
        assert (mpl.rcParams["font.size"], mpl.rcParams["svg.hashsalt"]) == (30, None)
    assert inside == before


def test_a_folder_that_cannot_be_written_is_a_typed_error(
    evaluation: list[Record], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(JournalError, match="file: could not be made: File exists"):
        save_all(evaluation, tmp_path / "file")


def test_without_matplotlib_an_error_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in FIGURES:
        with pytest.raises(ConfigError, match=r'pip install "openconductor\[plots\]"'):
            draw(name, Material())
