"""Figures as files: the same bytes for the same numbers, and nothing half-written."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from openconductor.errors import ConfigError, JournalError
from openconductor.evaluation.records import Record
from openconductor.gym.bundled import bundled_folder
from openconductor.plots import FIGURES, OF_TRAINING, Material, draw, rendered, save_all
from openconductor.plots.iterations import read_iterations

NAMES = {0: "anna", 1: "bert"}
DRAW = """
import sys, hashlib
from openconductor.gym.bundled import bundled_folder
from openconductor.plots import OF_TRAINING, Material, draw, rendered
print("lazy" if "matplotlib" not in sys.modules else "eager")
from openconductor.plots.iterations import read_iterations
material = Material(curve=read_iterations(bundled_folder() / "run"))
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
    for name, picture in pictures.items():
        assert (picture.svg, picture.png) == (folder / f"{name}.svg", folder / f"{name}.png")
        assert picture.svg.read_bytes().startswith(b"<?xml")
        assert picture.png.read_bytes().startswith(b"\x89PNG")
        assert picture.empty == (name == "worker_rounds")
    assert len(list(folder.iterdir())) == 2 * len(FIGURES)
    assert pictures["worker_kind"].title == "Right answers by kind of question"


def test_without_a_curve_there_is_no_figure_of_a_training(evaluation, tmp_path: Path) -> None:
    assert set(save_all(evaluation, tmp_path)) == set(FIGURES) - OF_TRAINING


def test_what_cannot_be_drawn_or_written_is_a_typed_error(
    evaluation: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="got no record and no curve"):
        save_all([], tmp_path)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(JournalError, match="file: could not be made: File exists"):
        save_all(evaluation, tmp_path / "file")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in FIGURES:
        with pytest.raises(ConfigError, match=r'pip install "openconductor\[plots\]"'):
            draw(name, Material())


def test_equal_records_give_equal_bytes_however_often_and_in_however_many_threads(
    evaluation,
) -> None:
    drawn = draw("accuracy_cost", Material(evaluation, NAMES))

    def work(_: int) -> bytes:
        return rendered(draw("accuracy_cost", Material(list(evaluation), NAMES)), "svg")

    alone = rendered(drawn, "svg")
    assert rendered(drawn, "svg") == alone, "written again it lays itself out as before"
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(work, range(2))) == [alone] * 2


def test_two_processes_with_other_hash_seeds_draw_the_same_and_neither_needs_pyplot() -> None:
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    there = subprocess.check_output([sys.executable, "-c", DRAW], env=environment, text=True)
    material = Material(curve=read_iterations(bundled_folder() / "run"))
    figures = [rendered(draw(name, material), "svg") for name in sorted(OF_TRAINING)]
    here = [sha256(figure).hexdigest() for figure in figures]
    assert there.splitlines() == ["lazy", *here, "no pyplot"]


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
