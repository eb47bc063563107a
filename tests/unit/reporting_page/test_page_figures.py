"""Figures on the page."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openconductor.errors import ConfigError, JournalError
from openconductor.evaluation.results import Results
from openconductor.reporting.page import render
from openconductor.reporting.report import Report, make_report

Make = Callable[..., Results]
Draw = Callable[..., Path]
Read = Callable[[str], Any]


def test_a_figure_is_held_by_the_page_with_its_caption_as_its_alternative_text(
    report: Report, svg: Draw, read: Read
) -> None:
    file = svg("headroom", title="Headroom won", caption="n = 12 &amp; more.")
    page = read(render(report, {"headroom": file}))
    (image,) = page.of("img")
    assert image.attributes["alt"] == "Headroom won. n = 12 & more."
    assert "section" in image.inside
    kind, _, data = image.attributes["src"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert file.read_bytes().endswith(b64decode(data))
    assert b64decode(data).startswith(b"<svg ")


def test_figures_stand_in_the_sections_that_ask_for_them_and_others_at_the_end(
    report: Report, svg: Draw, read: Read
) -> None:
    page = read(render(report, {"headroom": svg("headroom"), "of_tomorrow": svg("of_tomorrow")}))
    order = [tag.text if tag.name == "h2" else tag.attributes["id"] for tag in page.of("h2", "figure")]
    assert order.index("Where it stands") < order.index("figure-headroom") < order.index("Form")
    assert order.index("More figures") < order.index("figure-of_tomorrow")


def test_a_figure_that_only_says_why_it_is_empty_is_a_sentence(report: Report, svg: Draw, read: Read) -> None:
    file = svg("headroom", title="Headroom", caption="No worker alone was asked.", inside='<g id="message"/>')
    page = read(render(report, {"headroom": file}))
    assert not page.of("figure")
    (note,) = page.with_class("note")
    assert note.text == "Headroom: No worker alone was asked."


def test_figures_of_the_shelf_fit_the_page(results: Make, tmp_path: Path, read: Read) -> None:
    pytest.importorskip("matplotlib")
    from openconductor.plots import Material, save
    from openconductor.plots.topology_kind import plot as shapes
    from openconductor.plots.worker_rounds import plot as rounds

    found = results()
    material = Material(found.records, found.workers)
    files = {
        name: save(plot(material), tmp_path, name)[place]
        for name, plot, place in (("topology_kind", shapes, 0), ("worker_rounds", rounds, 0), ("headroom", shapes, 1))
    }
    page = read(render(make_report(found), files))
    kinds = {tag.attributes["src"].partition(";")[0] for tag in page.of("img")}
    assert kinds == {"data:image/svg+xml", "data:image/png"}
    alts = [tag.attributes["alt"] for tag in page.of("img")]
    assert any(alt.startswith("Shapes of workflows by kind of question. conductor: n = 11 valid") for alt in alts)
    (note,) = page.with_class("note")
    assert "one round only" in note.text


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("figure.svg", b"<svg", "expected a whole SVG"),
        ("figure.svg", b"<html></html>", "expected an SVG"),
        (
            "figure.svg",
            b'<!DOCTYPE svg [<!ENTITY a "b">]><svg xmlns="http://www.w3.org/2000/svg">&a;</svg>',
            "entities",
        ),
        ("figure.pdf", b"%PDF", "expected one of .svg, .png"),
    ],
)
def test_a_file_that_is_no_figure_is_refused(
    report: Report, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=re.escape(message)):
        render(report, {"headroom": tmp_path / name})


def test_a_figure_that_is_not_there_is_named(report: Report, tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"gone\.svg"):
        render(report, {"headroom": tmp_path / "gone.svg"})
