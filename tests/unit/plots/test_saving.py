"""Figures as files: the same bytes for the same numbers, whoever draws them, and nothing half-written."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from openconductor.errors import ConfigError, JournalError
from openconductor.evaluation.records import Record
from openconductor.gym.bundled import bundled_folder
from openconductor.plots import (
    FIGURES,
    OF_TRAINING,
    accuracy_cost,
    draw_all,
    headroom,
    rendered,
    save,
    save_all,
    topology_kind,
    workflow_length,
)
from openconductor.plots.iterations import read_curve
from openconductor.plots.material import Material, _letters
from openconductor.plots.sheet import text_of

Make = Callable[..., Record]
NAMES = {0: "anna", 1: "bert"}
DRAW = """
import sys, hashlib
from openconductor.gym.bundled import bundled_folder
from openconductor.plots import draw_all, rendered
for name, figure in draw_all([], bundled_folder() / "run").items():
    print(name, hashlib.sha256(rendered(figure, "svg")).hexdigest())
print("pyplot" if "matplotlib.pyplot" in sys.modules else "no pyplot")
"""


def test_every_figure_that_there_is_material_for_is_written_as_svg_and_png(
    evaluation: list[Record], tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "folder"
    pictures = save_all(evaluation, folder, bundled_folder() / "run", workers=NAMES)
    assert list(pictures) == list(FIGURES)
    files = {path for picture in pictures.values() for path in (picture.svg, picture.png)}
    assert {path.name for path in files} == {f"{name}.{form}" for name in FIGURES for form in ("svg", "png")}
    assert set(folder.iterdir()) == files
    assert all(path.read_bytes().startswith(b"\x89PNG" if path.suffix == ".png" else b"<?xml") for path in files)
    assert pictures["headroom"].title == "Headroom won, and regret"
    assert pictures["headroom"].caption.startswith("Zero: the best worker alone, anna")
    assert [name for name, picture in pictures.items() if picture.empty] == ["worker_rounds"]
    assert pictures["worker_rounds"].caption.startswith("conductor was asked for one round only")


def test_without_a_curve_only_the_evaluation_is_drawn_and_without_both_there_is_an_error(
    evaluation: list[Record], tmp_path: Path
) -> None:
    assert set(draw_all(evaluation)) == set(FIGURES) - OF_TRAINING
    with pytest.raises(ConfigError, match="got no record and no curve"):
        save_all([], tmp_path)


def test_equal_records_give_equal_bytes_however_often_they_are_written(evaluation: list[Record]) -> None:
    first, second = (draw_all(list(evaluation), workers=NAMES) for _ in range(2))
    for name, figure in first.items():
        assert rendered(figure, "svg") == rendered(second[name], "svg"), name
    assert rendered(first["headroom"], "png") == rendered(second["headroom"], "png"), "the same drawing, as dots"
    assert rendered(first["headroom"], "svg") == rendered(second["headroom"], "svg"), "after a PNG, too"


def test_other_records_give_other_bytes(evaluation: list[Record], record: Make) -> None:
    more = [*evaluation, record("conductor", 9, False, [0, 1, 1], planned=True, kind="easy", dollars="0.5")]
    for plot in (workflow_length.plot, topology_kind.plot):
        assert rendered(plot(Material(evaluation, NAMES)), "svg") != rendered(plot(Material(more, NAMES)), "svg")


def test_two_processes_with_other_hash_seeds_draw_the_same_and_neither_needs_pyplot() -> None:
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    other = subprocess.run(
        [sys.executable, "-c", DRAW],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": seed},
    ).stdout
    figures = draw_all([], bundled_folder() / "run")
    here = [f"{name} {sha256(rendered(figure, 'svg')).hexdigest()}" for name, figure in figures.items()]
    assert len(here) == len(OF_TRAINING)
    assert other.splitlines() == [*here, "no pyplot"]


def test_a_file_names_neither_a_date_nor_a_version_and_carries_its_caption(evaluation: list[Record]) -> None:
    import matplotlib as mpl

    figure = headroom.plot(Material(evaluation, NAMES))
    svg = rendered(figure, "svg").decode()
    assert "dc:date" not in svg
    assert mpl.__version__ not in svg.partition("<defs>")[0]
    assert f"<title>{text_of(figure, 'title')}</title>" in svg
    assert text_of(figure, "caption")[:40] in svg
    assert mpl.__version__.encode() not in rendered(figure, "png")


def test_a_name_with_control_characters_leaves_a_file_that_can_be_read(evaluation: list[Record], record: Make) -> None:
    odd = [record("moa:\x1b[31m<b>&\u202e", question, True, [0]) for question in range(4)]
    for plot in (headroom.plot, accuracy_cost.plot):
        ET.fromstring(rendered(plot(Material([*evaluation, *odd], NAMES)), "svg"))


def test_the_users_own_settings_change_no_figure_and_stay_as_they_were(evaluation: list[Record]) -> None:
    import matplotlib as mpl

    before = rendered(headroom.plot(Material(evaluation, NAMES)), "svg")
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "black", "svg.hashsalt": None}):
        inside = rendered(headroom.plot(Material(evaluation, NAMES)), "svg")
        assert mpl.rcParams["font.size"] == 30
        assert mpl.rcParams["svg.hashsalt"] is None
    assert inside == before


def test_threads_draw_beside_each_other(evaluation: list[Record]) -> None:
    results = Material(evaluation, NAMES)

    def work(found: list[bytes]) -> None:
        found += [rendered(plot(results), "svg") for plot in (headroom.plot, topology_kind.plot)]

    alone: list[bytes] = []
    work(alone)
    beside: list[list[bytes]] = [[], [], []]
    threads = [threading.Thread(target=work, args=(found,)) for found in beside]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert beside == [alone] * 3


def test_a_folder_that_cannot_be_written_is_a_typed_error(evaluation: list[Record], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    figure = headroom.plot(Material(evaluation, NAMES))
    with pytest.raises(JournalError, match="file: could not be made: File exists"):
        save(figure, tmp_path / "file", "headroom")


def test_importing_the_shelf_brings_no_matplotlib() -> None:
    program = "import sys, openconductor.plots as p; p.FIGURES; print('matplotlib' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"
    )


def test_without_matplotlib_an_error_names_the_command_that_installs_it(
    evaluation: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    plots = [import_module(target.partition(":")[0]).plot for target in FIGURES.values()]
    results = Material(evaluation, NAMES, read_curve(bundled_folder() / "run"))
    for module in ("matplotlib", "matplotlib.style", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, module, None)
    _letters.cache_clear()
    for plot in plots:
        with pytest.raises(ConfigError, match=r'pip install "openconductor\[plots\]"'):
            plot(results)
    with pytest.raises(ConfigError, match=r'pip install "openconductor\[plots\]"'):
        draw_all(evaluation)
