"""The report as one HTML file: whole, safe, the same each time, fit for all readers."""

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
from openconductor.evaluation.records import Record, Results
from openconductor.plots import Picture
from openconductor.report.page import render
from openconductor.report.report import Report, choose_system, make_report
from openconductor.report.sections import sections

pytest.importorskip("jinja2")
Make = Callable[..., Results]
Draw = Callable[..., Picture]
PageOf = Callable[..., Any]


@pytest.fixture(scope="session")
def page_of(read: Callable[[str], Any]) -> PageOf:
    """The page of results, parsed."""

    def make(results: Results, report: Report | None = None, **figures: Picture) -> Any:
        return read(render(report or make_report(results), figures, results, {}, {}))

    return make


@pytest.fixture(scope="session")
def whole(results: Make, picture: Draw, read, environment: dict[str, object]) -> Any:
    """A page with everything that one can have."""
    cost = picture("accuracy_cost", title="Accuracy against cost", caption="n = 12 & more.")
    empty = picture("worker_kind", title="Workers", caption="No worker was asked.", empty=True)
    figures = {"accuracy_cost": cost, "worker_kind": empty, "of_tomorrow": picture("of_tomorrow")}
    return read(render(make_report(results()), figures, results(), environment, {}))


def section(page: Any, name: str) -> str:
    """The text of a section."""
    (text,) = [tag.text for tag in page.of("section") if tag.attributes["id"] == name]
    return text


def with_records(results: Results, system: str, records: list[Record]) -> Results:
    """The results with further records, as those of another system."""
    renamed = [replace(record, system=system) for record in records]
    systems = (*results.systems, system)
    return replace(results, systems=systems, records=(*results.records, *renamed))


# ── the document ──────────────────────────────────────────────────────────────────────────────────
def test_the_page_is_one_html_document_with_landmarks_and_every_element_closed(whole: Any) -> None:
    for landmark in ("header", "nav", "main", "footer", "h1", "title"):
        assert len(whole.of(landmark)) == 1, landmark
    assert whole.of("html")[0].attributes["lang"] == "en"
    assert whole.of("meta")[0].attributes == {"charset": "utf-8"}
    headings = [int(tag.name[1]) for tag in whole.of("h1", "h2", "h3")]
    assert all(deeper - higher <= 1 for higher, deeper in pairwise(headings))
    captions = whole.of("caption")
    assert len(whole.of("table")) == len(captions) > 5
    assert all(tag.text for tag in captions)


def test_tables_are_read_aloud_and_scrolled_by_keyboard(whole: Any) -> None:
    for tag in whole.of("th"):
        assert tag.text
        assert tag.attributes["scope"] in ("row", "col", "rowgroup")
    for frame in whole.with_class("scroll"):
        assert (frame.attributes["tabindex"], frame.attributes["role"]) == ("0", "region")
        assert frame.attributes["aria-label"]


LOADED = ("script", "iframe", "object", "embed", "base", "form", "video", "audio", "source", "use")
LOADING = {"style", "srcset", "action", "formaction", "ping", "background", "poster", "data"}


def test_nothing_of_the_page_is_outside_of_it(whole: Any) -> None:
    assert not whole.of(*LOADED)
    for tag in whole.tags:
        assert LOADING.isdisjoint(tag.attributes), tag
        for name, value in tag.attributes.items():
            assert not name.startswith("on"), tag
            assert name not in ("src", "href") or value.startswith(("data:", "#")), tag
    (style,) = whole.of("style")
    assert "@import" not in style.text
    assert "url(" not in style.text
    digest = b64encode(sha256(style.text.encode()).digest()).decode()
    (meta,) = [tag for tag in whole.of("meta") if "http-equiv" in tag.attributes]
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:"
    assert meta.attributes["content"] == f"{policy}; base-uri 'none'; form-action 'none'"


def test_names_that_look_like_markup_are_names(results: Make, picture, page_of: PageOf) -> None:
    hostile = "<script>alert(1)</script>"
    title = "</title><script>alert(2)</script>"
    names, kinds = (hostile, '"><img src=x onerror=alert(1)>'), ("</td></table><h1>", "easy&lt;")
    caption = picture("accuracy_cost", caption="</figure><script>")
    page = page_of(results(names=names, kinds=kinds, name=title), accuracy_cost=caption)
    assert not page.of("script")
    assert [tag.text for tag in page.of("figcaption")] == ["</figure><script>"]
    assert page.of("title")[0].text == f"{title}: orchestration report"
    assert {hostile, "easy&lt;"} <= {tag.text for tag in page.of("th")}
    assert "alert(2)" in page.of("pre")[0].text


def test_characters_that_no_page_may_hold_are_replaced(results: Make) -> None:
    found = results(names=("a\x00\x1b[31m", "b\ud800"))
    text = render(make_report(found), {}, found, {}, {})
    assert "a\ufffd\ufffd[31m" in text
    assert "b\ufffd" in text
    assert not re.search("[\x00-\x08\x0b-\x1f]", text)


def test_the_same_report_is_the_same_page_whatever_the_hash_seed(results: Make) -> None:
    found = results()
    here = sha256(render(make_report(found), {}, found, {}, {}).encode()).hexdigest()
    tests = [str(Path(__file__).parent)]
    script = (
        f"import sys; sys.path[:0] = {tests!r}\n"
        "import hashlib, conftest\n"
        "from openconductor.report.page import render\n"
        "from openconductor.report.report import make_report\n"
        "found = conftest.make_results()\n"
        "text = render(make_report(found), {}, found, {}, {})\n"
        "print(hashlib.sha256(text.encode()).hexdigest())\n"
    )
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    there = subprocess.check_output([sys.executable, "-c", script], env=environment, text=True)
    assert there.strip() == here


def test_without_jinja_an_error_names_the_command_that_installs_it(
    report: Report, results: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigError, match=r'pip install "openconductor\[plots\]"'):
        render(report, {}, results(), {}, {})


# ── who reads it ──────────────────────────────────────────────────────────────────────────────────


# ── what it says ──────────────────────────────────────────────────────────────────────────────────
def test_a_figure_is_in_the_section_that_asks_for_it_and_an_empty_one_is_a_sentence(whole) -> None:
    image, _ = whole.of("img")
    assert image.attributes["alt"] == "Accuracy against cost"
    assert whole.of("figcaption")[0].text == "n = 12 & more."
    kind, _, data = image.attributes["src"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert b64decode(data).startswith(b"<svg")
    order = [tag.attributes["id"] for tag in whole.of("section", "figure")]
    cost, later = order.index("figure-accuracy_cost"), order.index("figure-of_tomorrow")
    assert order.index("where-it-stands") < cost < order.index("form")
    assert order.index("more-figures") < later
    assert [note.text for note in whole.with_class("note")] == ["Workers: No worker was asked."]


def test_the_verdict_comes_first_and_its_reasons_with_their_answers_below(report, whole) -> None:
    (banner,) = whole.with_class("verdict")
    assert banner.text.startswith(report.verdict.label)
    assert report.verdict.line.partition(": ")[2] in banner.text
    before = {tag.name for tag in whole.tags[: whole.tags.index(banner)]}
    assert before.isdisjoint({"table", "nav", "section"})
    assert "open" in banner.attributes["class"], "a tone beside its words: good, bad or open"
    assert [tag.text for tag in whole.with_class("answer")] == list(report.verdict.answers.values())
    (reasons,) = whole.with_class("asked")
    assert all(reason in reasons.text for reason in report.verdict.reasons)


def test_every_section_is_on_the_page_and_the_contents_lead_to_it(report, whole) -> None:
    titles = [tag.text for tag in whole.of("h2")]
    cells = {tag.text for tag in whole.of("td", "th")}
    sentences = {tag.text for tag in whole.of("p")}
    for part in sections(report):
        assert part.title in titles
        assert sentences.issuperset(part.lines)
        assert cells.issuperset(row[0] for row in part.rows)
    assert titles[:3] == ["Contents", "Where it stands", "Who gets the work"]
    assert titles[-1] == "How it was made"


def test_links_lead_to_every_section_and_no_id_stands_twice(whole: Any) -> None:
    ids = [tag.attributes["id"] for tag in whole.tags if "id" in tag.attributes]
    assert len(ids) == len(set(ids))
    links = {tag.attributes["href"].removeprefix("#") for tag in whole.of("a")}
    assert links <= set(ids)
    for tag in whole.of("section"):
        assert tag.attributes["id"] in links
        assert tag.attributes["aria-labelledby"] in ids


def test_systems_are_grouped_under_short_names_and_long_tables_are_folded(
    results: Make, page_of: PageOf
) -> None:
    ablation = "conductor?access=none"
    page = page_of(with_records(results(), ablation, results().of("conductor")))
    order = [tag.text for tag in page.of("th") if tag.attributes["scope"] == "rowgroup"]
    assert order[:5] == ["Orchestrators", "Baselines", "Workers alone", "Bounds", "Ablations"]
    assert "access=none" in page.rows("Where it stands")
    assert list(page.rows("What was counted")) == ["conductor"]
    assert ablation in page.rows("What was counted, the rest")
    assert {"anna", "access=none"} <= page.rows("What a question costs, the rest").keys()
    folded = {tag.text for tag in page.of("caption") if "details" in tag.inside}
    assert folded == {"What was counted, the rest", "What a question costs, the rest"}


def test_a_system_above_the_oracle_is_named_with_the_reason(results: Make, page_of) -> None:
    worse = [replace(record, correct=False) for record in results().of("conductor")]
    page = page_of(with_records(results(others=False), "oracle", worse))
    (text,) = [tag.text for tag in page.with_class("legend") if "Above the oracle" in tag.text]
    assert "conductor (" in text
    assert "a lead within it is luck" in text


def test_what_was_decided_is_said(results: Make, page_of: PageOf, whole: Any) -> None:
    (text,) = whole.with_class("decided")
    assert text.text == "12 answers: 11 decided (1 invalid among the wrong), 1 not (1 failed)."
    answered = results(others=False)
    masked: list[Record] = []
    for record in answered.of("conductor"):
        masked.append(replace(record, correct=None, status="failed", rounds=()))
    undecided = replace(answered, records=tuple(masked))
    assert choose_system(undecided, None) == "conductor", "though it never planned"
    page = page_of(undecided)
    assert page.with_class("decided")[0].text == "12 answers: 0 decided, 12 not (12 failed)."
    assert "Who gets the work" not in [tag.text for tag in page.of("h2")]


MISSING = ("best fixed workflow", "no plan was replayed", "not evaluated on these", "no curve")


def test_what_is_missing_is_said(results: Make, page_of: PageOf) -> None:
    missing = section(page_of(results(others=False)), "not-in-this-report")
    for reason in MISSING:
        assert reason in missing


FACTS = {"seed": "7", "packages": "openconductor 0.1.0", "python": "3.11.7"}


@pytest.mark.parametrize(("unpriced", "dollars"), [(0, "20.0"), (1, "-")])
def test_costs_are_a_question_s_and_an_unknown_price_is_a_dash(
    results: Make, page_of: PageOf, unpriced: int, dollars: str
) -> None:
    page = page_of(results(unpriced=unpriced))
    assert page.rows("What a question costs")["conductor"][:3] == [dollars, "100", "1.08"]
    anna = page.rows("What a question costs, the rest")["anna"]
    assert anna == ["10.0", "100", "1.00", "50.0", "2.00", "2.00"]


def test_how_it_was_made_has_recipe_seed_versions_prices_and_data(whole: Any) -> None:
    names, values = [[tag.text for tag in whole.of(kind)] for kind in ("dt", "dd")]
    assert FACTS.items() <= dict(zip(names, values, strict=True)).items()
    assert 'systems = ["conductor", "workers", ' in whole.of("pre")[0].text
    prices = whole.rows("Prices of the workers, in US dollars a million tokens")
    assert prices == {"anna": ["3", "15.5"], "bert": ["-", "-"]}
    assert whole.rows("The tasks' data") == {"gym": ["12", "drawn", "test", "abc"]}


def test_records_that_are_missing_are_counted(results: Make, page_of: PageOf) -> None:
    answered = results()
    page = page_of(replace(answered, records=answered.records[:-2]))
    for part in ("header", "dl"):
        assert "2 records of the evaluation are missing" in page.of(part)[0].text
