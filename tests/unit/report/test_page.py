"""The report as one HTML file: whole, safe, the same each time, fit for all readers; and what it says, and where."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from openconductor.errors import ConfigError
from openconductor.evaluation.records import Results
from openconductor.plots import Picture
from openconductor.report.page import render
from openconductor.report.report import Report, choose_system, make_report
from openconductor.report.sections import sections
from openconductor.report.training import Course, Training

pytest.importorskip("jinja2")
Make = Callable[..., Results]
Draw = Callable[..., Picture]
PageOf = Callable[..., Any]


@pytest.fixture(scope="session")
def page_of(read: Callable[[str], Any]) -> PageOf:
    """The page of results, parsed."""

    def make(
        found: Results, report: Report | None = None, system: str | None = None, **figures: Picture
    ) -> Any:
        return read(render(report or make_report(found, system=system), figures, found, {}))

    return make


@pytest.fixture(scope="session")
def whole(
    results: Make, picture: Draw, read: Callable[[str], Any], environment: dict[str, object]
) -> Any:
    """A page with everything that one can have."""
    figures = {
        "accuracy_cost": picture(
            "accuracy_cost", title="Accuracy against cost", caption="n = 12 & more."
        ),
        "worker_kind": picture(
            "worker_kind", title="Workers", caption="No worker alone was asked.", empty=True
        ),
        "of_tomorrow": picture("of_tomorrow"),
    }
    return read(render(make_report(results()), figures, results(), environment))


# ── the document ──────────────────────────────────────────────────────────────────────────────────
def test_the_page_is_one_html_document_with_landmarks_and_every_element_closed(
    report: Report, whole: Any
) -> None:
    for landmark in ("header", "nav", "main", "footer", "h1", "title"):
        assert len(whole.of(landmark)) == 1, landmark
    assert whole.of("html")[0].attributes["lang"] == "en"
    assert whole.of("meta")[0].attributes == {"charset": "utf-8"}
    headings = [int(tag.name[1]) for tag in whole.of("h1", "h2", "h3")]
    assert all(deeper - higher <= 1 for higher, deeper in pairwise(headings))
    tables, captions = whole.of("table"), whole.of("caption")
    assert len(tables) == len(captions) > 5 and all(tag.text for tag in captions)
    assert all(
        tag.attributes.get("scope") in ("row", "col", "rowgroup") and tag.text
        for tag in whole.of("th")
    )
    for frame in whole.with_class("scroll"):  # it scrolls by keyboard
        assert (frame.attributes["tabindex"], frame.attributes["role"]) == ("0", "region")
        assert frame.attributes["aria-label"]


def test_nothing_of_the_page_is_outside_of_it(whole: Any) -> None:
    assert not whole.of(
        "script", "iframe", "object", "embed", "base", "form", "video", "audio", "source", "use"
    )
    for tag in whole.tags:
        for name, value in tag.attributes.items():
            assert not name.startswith("on"), (tag.name, name)
            assert name not in (
                "style",
                "srcset",
                "action",
                "formaction",
                "ping",
                "background",
                "poster",
                "data",
            )
            if name in ("src", "href"):
                assert value.startswith(("data:", "#")), (tag.name, value[:60])
    (style,) = whole.of("style")
    assert "@import" not in style.text
    assert "url(" not in style.text
    (policy,) = [
        tag.attributes["content"] for tag in whole.of("meta") if "http-equiv" in tag.attributes
    ]
    digest = b64encode(sha256(style.text.encode()).digest()).decode()
    assert dict(rule.split(" ", 1) for rule in policy.split("; ")) == {
        "default-src": "'none'",
        "style-src": f"'sha256-{digest}'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_names_that_look_like_markup_are_names(
    results: Make, picture: Draw, page_of: PageOf
) -> None:
    hostile = "<script>alert(1)</script>"
    found = results(
        names=(hostile, '"><img src=x onerror=alert(1)>'),
        kinds=("</td></table><h1>", "easy&lt;"),
        name="</title><script>alert(2)</script>",
    )
    page = page_of(found, accuracy_cost=picture("accuracy_cost", caption="</figure><script>"))
    assert not page.of("script")
    assert [tag.text for tag in page.of("figcaption")] == ["</figure><script>"]
    assert page.of("title")[0].text == "</title><script>alert(2)</script>: orchestration report"
    assert {hostile, "easy&lt;"} <= {tag.text for tag in page.of("th")}
    assert "alert(2)" in page.of("pre")[0].text


def test_characters_that_no_page_may_hold_are_replaced(results: Make) -> None:
    found = results(names=("a\x00\x1b[31m", "b\ud800"))
    text = render(make_report(found), {}, found, {})
    assert "a\ufffd\ufffd[31m" in text
    assert "b\ufffd" in text
    assert not re.search("[\x00-\x08\x0b-\x1f]", text)


def test_the_same_report_is_the_same_page_whatever_the_hash_seed(results: Make) -> None:
    found = results()
    here = sha256(render(make_report(found), {}, found, {}).encode()).hexdigest()
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import hashlib, conftest\n"
        "from openconductor.report.page import render\n"
        "from openconductor.report.report import make_report\n"
        "found = conftest.make_results()\n"
        "print(hashlib.sha256(render(make_report(found), {}, found, {}).encode()).hexdigest())\n"
    )
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    command, environment = [sys.executable, "-c", script], {**os.environ, "PYTHONHASHSEED": seed}
    there = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert there.strip() == here


def test_without_jinja_an_error_names_the_command_that_installs_it(
    report: Report, results: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigError, match=r'pip install "openconductor\[plots\]"'):
        render(report, {}, results(), {})


# ── who reads it ──────────────────────────────────────────────────────────────────────────────────
def test_differences_are_drawn_against_zero_beside_their_numbers(whole: Any) -> None:
    assert all(tag.attributes["aria-hidden"] == "true" for tag in whole.of("svg"))
    places = [float(tag.attributes[name]) for tag in whole.of("line") for name in ("x1", "x2")]
    assert 0 <= min(places) <= max(places) <= 100
    tags = whole.tags
    start = next(
        place
        for place, tag in enumerate(tags)
        if tag.name == "caption" and tag.text == "Where it stands"
    )
    table = tags[start : next(p for p in range(start + 1, len(tags)) if tags[p].name == "section")]
    (scale,) = [tag for tag in table if tag.attributes.get("class") == "ticks"]
    least, most = (float(tag.text) for tag in table if tag.name == "span" and "span" in tag.inside)
    assert scale.text == f"{least:+.0f}{most:+.0f}"
    zeros = [float(tag.attributes["x1"]) for tag in table if tag.attributes.get("class") == "held"]
    # A lead, and below it, where the page is narrow, its interval.
    told = r"([+-]\d+\.\d)[+-]\d+\.\d to [+-]\d+\.\d"
    leads = [
        found[1] for tag in table if tag.name == "td" and (found := re.fullmatch(told, tag.text))
    ]
    values = [
        float(tag.attributes["x1"]) for tag in table if tag.attributes.get("class") == "value"
    ]
    assert len(values) == len(zeros) == len(leads) == 5
    for value, zero, lead in zip(values, zeros, leads, strict=True):
        assert least + (most - least) * value / 100 == pytest.approx(float(lead), abs=0.06)
        assert least + (most - least) * zero / 100 == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize("dark", [False, True])
def test_words_can_be_read_on_what_is_behind_them(whole: Any, dark: bool) -> None:
    style = whole.of("style")[0].text
    colours = dict(
        re.findall(
            r"--([a-z-]+): (#[0-9a-f]{6})", re.findall(r":root \{(.*?)\}", style, re.DOTALL)[dark]
        )
    )
    pairs = [
        (colours[ink], colours[back])
        for ink in ("ink", "soft", "link")
        for back in ("paper", "raised")
    ]
    pairs += [
        (colours["ink"], colours[back]) for back in ("ours", "good-back", "bad-back", "open-back")
    ]
    pairs += [(colours[tone], colours[f"{tone}-back"]) for tone in ("good", "bad", "open")]
    shades = re.findall(r"\.shade-\d \{ background: (#\w{6}); color: (#\w{6}); \}", style)
    assert len(shades) == 12
    for ink, paper in [*pairs, *(shades[6:] if dark else shades[:6])]:
        assert _contrast(ink, paper) >= 4.5, (ink, paper)  # WCAG 2.2, AA


def _contrast(one: str, other: str) -> float:
    """The ratio of contrast of two colours (WCAG 2.2)."""

    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


# ── what it says ──────────────────────────────────────────────────────────────────────────────────
def test_a_figure_is_in_the_section_that_asks_for_it_and_an_empty_one_is_a_sentence(
    whole: Any,
) -> None:
    image, _ = whole.of("img")
    assert image.attributes["alt"] == "Accuracy against cost"
    assert whole.of("figcaption")[0].text == "n = 12 & more."
    assert "section" in image.inside
    kind, _, data = image.attributes["src"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert b64decode(data).startswith(b"<svg")
    order = [
        tag.text if tag.name == "h2" else tag.attributes["id"] for tag in whole.of("h2", "figure")
    ]
    assert (
        order.index("Where it stands") < order.index("figure-accuracy_cost") < order.index("Form")
    )
    assert order.index("More figures") < order.index("figure-of_tomorrow")
    assert [note.text for note in whole.with_class("note")] == [
        "Workers: No worker alone was asked."
    ]


def test_the_verdict_comes_first_and_its_reasons_with_their_answers_below(
    report: Report, whole: Any
) -> None:
    (banner,) = whole.with_class("verdict")
    (label,) = [tag for tag in whole.of("strong") if "p" in tag.inside and "header" in tag.inside]
    assert label.text == report.verdict.label
    assert report.verdict.line.partition(": ")[2] in banner.text
    order = [tag for tag in whole.tags if tag is banner or tag.name in ("table", "nav", "section")]
    assert order[0] is banner
    assert "open" in banner.attributes["class"], "a tone beside its words: good, bad or open"
    assert [tag.text for tag in whole.with_class("answer")] == list(report.verdict.answers.values())
    said = " ".join(tag.text for tag in whole.with_class("asked"))
    assert all(reason in said for reason in report.verdict.reasons)


def test_every_section_of_the_report_is_on_the_page_and_the_contents_lead_to_it(
    report: Report, whole: Any
) -> None:
    titles = [tag.text for tag in whole.of("h2")]
    cells = {tag.text for tag in whole.of("td", "th")}
    said = " ".join(tag.text for tag in whole.of("p"))
    for section in sections(report):
        assert section.title in titles
        assert all(line in said for line in section.lines)
        assert all(row[0] in cells for row in section.rows)
    assert titles[:3] == ["Contents", "Where it stands", "Who gets the work"]
    assert titles[-1] == "How it was made"
    ids = [tag.attributes["id"] for tag in whole.tags if "id" in tag.attributes]
    assert len(ids) == len(set(ids))
    links = [tag.attributes["href"] for tag in whole.of("a")]
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    assert {f"#{tag.attributes['id']}" for tag in whole.of("section")} <= set(links)
    assert all(tag.attributes["aria-labelledby"] in ids for tag in whole.of("section"))


def test_systems_are_grouped_under_short_names_and_long_tables_are_folded(
    results: Make, page_of: PageOf
) -> None:
    found = results()
    changed = [replace(one, system="conductor?access=none") for one in found.of("conductor")]
    systems = (*found.systems, "conductor?access=none")
    page = page_of(replace(found, systems=systems, records=(*found.records, *changed)))
    order = [tag.text for tag in page.of("th") if tag.attributes["scope"] == "rowgroup"]
    assert order[:5] == ["Orchestrators", "Baselines", "Workers alone", "Bounds", "Ablations"]
    assert "access=none" in page.rows("Where it stands")
    assert list(page.rows("What was counted")) == ["conductor"]
    assert "conductor?access=none" in page.rows("What was counted, the rest")
    assert {"anna", "access=none"} <= page.rows("What a question costs, the rest").keys()
    folded = {tag.text for tag in page.of("caption") if "details" in tag.inside}
    assert folded == {"What was counted, the rest", "What a question costs, the rest"}


def test_a_study_of_seeds_says_which_learnt_and_how_far_trainings_lie_apart(
    results: Make, page_of: PageOf
) -> None:
    found, same = results(), {"start": 0.1, "share_of_oracle": 0.9, "validity": 1.0, "sampled": 0.7}
    rows = [
        {"seed": seed, "control": "none", "greedy": greedy, **same}
        for seed, greedy in ((1, 0.7), (2, 0.8))
    ]
    rows.append({"seed": 1, "control": "flipped", "greedy": 0.0, **same})
    study = {"rows": rows, "levels": {"random": 0.1}, "learnt": 2, "seeds": 2, "run": "seed-2"}
    study |= {"median_share_of_oracle": 0.9, "worst_share_of_oracle": 0.85}
    course = Course(None, None)
    curve = Training(
        10, 2, *[course] * 5, study=study, terms="Each question offered 4 to 8 of the workers."
    )
    page = page_of(found, replace(make_report(found), training=curve))
    shown = page.rows("Does every seed learn")
    assert shown["seed 2"] == ["10.0", "70.0", "80.0", "90.0", "100.0"]
    assert "control: flipped rewards" in shown
    (said,) = [
        tag.text for tag in page.of("section") if tag.attributes["id"] == "does-every-seed-learn"
    ]
    assert "2 of 2 seeds learnt" in said and "90.0 % in the median, 85.0 % at worst" in said
    assert "75.0 % (11.5 to 100.0, Student's" in said, (
        "Student's interval of two trainings, controls aside"
    )
    assert any(tag.text.strip().startswith("seed 2") for tag in page.with_class("ours")), (
        "the one that is reported on"
    )
    assert "offered 4 to 8 of the workers" in next(
        t.text for t in page.of("section") if t.attributes["id"] == "the-training"
    )


def test_what_is_above_the_oracle_is_named_with_the_reason(results: Make, page_of: PageOf) -> None:
    found = results()
    worse = [
        replace(one, system="oracle", correct=False)
        for one in found.of("conductor")
        if one.correct is not None
    ]
    page = page_of(
        replace(found, systems=(*found.systems, "oracle"), records=(*found.records, *worse))
    )
    (said,) = [
        tag.text for tag in page.with_class("legend") if tag.text.startswith("Above the oracle")
    ]
    assert "conductor (" in said and "a lead within it is luck" in said


def test_what_was_decided_and_what_is_missing_is_said(
    results: Make, page_of: PageOf, whole: Any
) -> None:
    (said,) = whole.with_class("decided")
    assert said.text == "12 answers: 11 decided (1 invalid among the wrong), 1 not (1 failed)."
    found = results(others=False)
    (missing,) = [
        tag.text
        for tag in page_of(found).of("section")
        if tag.attributes["id"] == "not-in-this-report"
    ]
    for why in (
        "best fixed workflow",
        "no plan was replayed",
        "was not evaluated on these",
        "no curve was given",
    ):
        assert why in missing
    ours = [one for one in found.records if one.system == "conductor"]
    masked = replace(
        found, records=tuple(replace(one, correct=None, status="failed", rounds=()) for one in ours)
    )
    assert choose_system(masked, None) == "conductor", (
        "the one that is asked for, though it never planned"
    )
    page = page_of(masked)
    assert page.with_class("decided")[0].text == "12 answers: 0 decided, 12 not (12 failed)."
    assert "Who gets the work" not in [tag.text for tag in page.of("h2")]


def test_the_shares_of_workers_stand_by_kind_and_are_shaded(report: Report, whole: Any) -> None:
    rows = whole.rows("Share of each worker among the steps, in percent")
    assert list(rows) == ["all", "easy", "hard"]
    assert rows["easy"][0] == "6"
    shares = report.orchestration.routing.by_kind[0].workers
    assert rows["easy"][1].startswith(f"{100 * shares['anna'].value:.1f}")
    assert (
        len([tag for tag in whole.of("td") if tag.attributes.get("class", "").startswith("shade-")])
        == 6
    )


@pytest.mark.parametrize(("unpriced", "dollars"), [(0, "20.0"), (1, "-")])
def test_costs_are_a_question_s_and_an_unknown_price_is_a_dash(
    results: Make, page_of: PageOf, unpriced: int, dollars: str
) -> None:
    page = page_of(results(unpriced=unpriced))
    assert page.rows("What a question costs")["conductor"][:3] == [dollars, "100", "1.08"]
    assert page.rows("What a question costs, the rest")["anna"] == [
        "10.0",
        "100",
        "1.00",
        "50.0",
        "2.00",
        "2.00",
    ]


def test_how_it_was_made_has_recipe_seed_versions_prices_and_data(
    whole: Any, results: Make, page_of: PageOf
) -> None:
    facts = dict(
        zip((tag.text for tag in whole.of("dt")), (tag.text for tag in whole.of("dd")), strict=True)
    )
    expected = {
        "seed": "7",
        "packages": "openconductor 0.1.0",
        "python": "3.11.7",
        "sandbox": "bubblewrap",
    }
    assert facts.items() >= expected.items()
    assert 'systems = ["conductor", "workers", ' in whole.of("pre")[0].text
    prices = whole.rows("Prices of the workers, in US dollars a million tokens")
    assert prices == {"anna": ["3", "15.5"], "bert": ["-", "-"]}
    assert whole.rows("The tasks' data") == {"gym": ["12", "drawn", "test", "abc"]}
    found = results()
    page = page_of(replace(found, records=found.records[:-2]))
    for part in ("h1", "dl"):
        assert "2 records of the evaluation are missing" in page.of(part)[0].text
