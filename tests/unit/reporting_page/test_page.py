"""The report as one HTML file: whole, safe, the same each time, and fit for all readers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from openconductor.errors import JournalError
from openconductor.evaluation.results import Results
from openconductor.reporting.page import render, write_page
from openconductor.reporting.page.tables import SHADES
from openconductor.reporting.report import Report, make_report

Make = Callable[..., Results]
Draw = Callable[..., Path]
Read = Callable[[str], Any]


# ── the document ─────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_page_is_one_html_document_with_landmarks_and_every_element_closed(
    results: Make, svg: Draw, read: Read, environment: dict[str, object]
) -> None:
    found = results()
    text = render(make_report(found), {"headroom": svg("headroom")}, results=found, environment=environment)
    assert text.startswith("<!doctype html>\n<html")
    page = read(text)
    for landmark in ("header", "nav", "main", "footer", "h1", "title"):
        assert len(page.of(landmark)) == 1, landmark
    assert page.of("html")[0].attributes["lang"] == "en"
    assert page.of("meta")[0].attributes == {"charset": "utf-8"}
    headings = [int(tag.name[1]) for tag in page.of("h1", "h2", "h3")]
    assert all(deeper - higher <= 1 for higher, deeper in pairwise(headings))


def test_nothing_of_the_page_lies_outside_of_it(
    results: Make, svg: Draw, read: Read, environment: dict[str, object]
) -> None:
    found = results()
    page = read(render(make_report(found), {"headroom": svg("headroom")}, results=found, environment=environment))
    assert not page.of("script", "iframe", "object", "embed", "base", "form", "video", "audio", "source", "use")
    for tag in page.tags:
        for name, value in tag.attributes.items():
            assert not name.startswith("on"), (tag.name, name)
            assert name not in ("style", "srcset", "action", "formaction", "ping", "background", "poster", "data")
            if name in ("src", "href"):
                assert value.startswith(("data:", "#")), (tag.name, value[:60])
    style = page.of("style")[0].text
    assert "@import" not in style
    assert "url(" not in style


def test_the_policy_allows_the_style_sheet_by_its_hash_and_images_within(report: Report, read: Read) -> None:
    page = read(render(report, {}))
    (style,) = page.of("style")
    (policy,) = [tag.attributes["content"] for tag in page.of("meta") if "http-equiv" in tag.attributes]
    digest = b64encode(sha256(style.text.encode()).digest()).decode()
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules == {
        "default-src": "'none'",
        "style-src": f"'sha256-{digest}'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_names_that_look_like_markup_are_names(results: Make, svg: Draw, read: Read) -> None:
    hostile = "<script>alert(1)</script>"
    found = results(
        names=(hostile, '"><img src=x onerror=alert(1)>'),
        kinds=("</td></table><h1>", "easy&lt;"),
        name="</title><script>alert(2)</script>",
    )
    caption = "&lt;/figure&gt;&lt;script&gt;"
    text = render(make_report(found), {"headroom": svg("headroom", caption=caption)}, results=found)
    page = read(text)
    assert not page.of("script")
    assert [tag.attributes["alt"] for tag in page.of("img")] == ["A title. </figure><script>"]
    assert page.of("title")[0].text == "</title><script>alert(2)</script>: orchestration report"
    assert hostile in [tag.text for tag in page.of("th")]
    assert "easy&lt;" in [tag.text for tag in page.of("th")]
    assert "alert(2)" in page.of("pre")[0].text


def test_characters_that_no_page_may_hold_are_replaced(results: Make, tmp_path: Path) -> None:
    found = results(names=("a\x00\x1b[31m", "b\ud800"))
    write_page(make_report(found), {}, tmp_path / "page.html", results=found)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "a\ufffd\ufffd[31m" in text
    assert "b\ufffd" in text
    assert not re.search("[\x00-\x08\x0b-\x1f]", text)


def test_the_same_report_is_the_same_page_whatever_the_hash_seed(
    results: Make, svg: Draw, tmp_path: Path, environment: dict[str, object]
) -> None:
    found = results()
    figure = svg("headroom")
    pages = [render(make_report(found), {"headroom": figure}, results=found, environment=environment) for _ in range(2)]
    assert pages[0] == pages[1]
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import hashlib, conftest\n"
        "from openconductor.reporting.page import render\n"
        "from openconductor.reporting.report import make_report\n"
        "found = conftest.make_results()\n"
        "print(hashlib.sha256(render(make_report(found), {}, results=found).encode()).hexdigest())\n"
    )
    digests = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    ]
    assert digests[0] == digests[1]


def test_the_page_is_written_whole_and_in_place_of_an_older_one(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.html"
    write_page(replace(report, name="older"), {}, path)
    write_page(report, {}, path)
    assert [one.name for one in path.parent.iterdir()] == ["report.html"]
    assert path.read_text(encoding="utf-8") == render(report, {})
    with pytest.raises(JournalError, match="could not be"):
        write_page(report, {}, path / "below" / "report.html")


# ── who reads it ─────────────────────────────────────────────────────────────────────────────────────────────────────
def test_tables_have_captions_and_headings_and_scroll_by_keyboard(
    results: Make, read: Read, environment: dict[str, object]
) -> None:
    found = results()
    page = read(render(make_report(found), {}, results=found, environment=environment))
    tables, captions = page.of("table"), page.of("caption")
    assert len(tables) == len(captions) > 5
    assert all(tag.text for tag in captions)
    assert all(tag.attributes.get("scope") in ("row", "col") and tag.text for tag in page.of("th"))
    for frame in page.with_class("scroll"):
        assert frame.attributes["tabindex"] == "0"
        assert frame.attributes["role"] == "region"
        assert frame.attributes["aria-label"]


def test_drawings_are_hidden_from_readers_aloud_and_stay_on_their_scale(report: Report, read: Read) -> None:
    page = read(render(report, {}))
    drawings = page.of("svg")
    assert drawings
    assert all(tag.attributes["aria-hidden"] == "true" for tag in drawings)
    places = [float(tag.attributes[name]) for tag in page.of("line") for name in ("x1", "x2")]
    assert min(places) >= 0
    assert max(places) <= 100


def test_differences_are_drawn_against_zero_beside_their_numbers(results: Make, read: Read) -> None:
    page = read(render(make_report(results()), {}))
    tags = page.tags
    start = next(place for place, tag in enumerate(tags) if tag.name == "caption" and tag.text == "Where it stands")
    table = tags[start : next(p for p in range(start + 1, len(tags)) if tags[p].name == "section")]
    (scale,) = [tag for tag in table if tag.attributes.get("class") == "ticks"]
    least, most = (float(tag.text) for tag in table if tag.name == "span" and "span" in tag.inside)
    assert scale.text == f"{least:+.0f}{most:+.0f}"
    zeros = [float(tag.attributes["x1"]) for tag in table if tag.attributes.get("class") == "held"]
    leads = [tag.text for tag in table if tag.name == "td" and re.fullmatch(r"[+-]\d+\.\d", tag.text)]
    values = [float(tag.attributes["x1"]) for tag in table if tag.attributes.get("class") == "value"]
    assert len(values) == len(zeros) == len(leads) == 5
    for value, zero, lead in zip(values, zeros, leads, strict=True):
        assert least + (most - least) * value / 100 == pytest.approx(float(lead), abs=0.02)
        assert least + (most - least) * zero / 100 == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_can_be_read_on_what_they_stand_on(report: Report, scheme: str, read: Read) -> None:
    style = read(render(report, {})).of("style")[0].text
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", blocks[0 if scheme == "light" else 1]))
    pairs = [
        *((ink, paper) for ink in ("ink", "soft", "link") for paper in ("paper", "raised")),
        *(("ink", back) for back in ("ours", "good-back", "bad-back", "open-back")),
        *((tone, f"{tone}-back") for tone in ("good", "bad", "open")),
    ]
    for ink, paper in pairs:
        assert _contrast(colours[ink], colours[paper]) >= 4.5, (ink, paper)  # WCAG 2.2, AA
    shades = re.findall(r"\.shade-\d \{ background: (#\w{6}); color: (#\w{6}); \}", style)
    for back, ink in shades[:SHADES] if scheme == "light" else shades[SHADES:]:
        assert _contrast(back, ink) >= 4.5, (back, ink)


def _contrast(one: str, other: str) -> float:
    """The ratio of contrast of two colours (WCAG 2.2)."""

    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
