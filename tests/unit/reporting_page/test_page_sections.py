"""What the page says, and where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openconductor.evaluation.results import Results
from openconductor.reporting.files import chosen
from openconductor.reporting.page import render
from openconductor.reporting.page.tables import SHADES
from openconductor.reporting.report import Report, make_report
from openconductor.reporting.rows import sections
from openconductor.reporting.verdict import Verdict

Make = Callable[..., Results]
Draw = Callable[..., Path]
Read = Callable[[str], Any]


def test_the_verdict_comes_first_and_its_reasons_with_their_answers_below(report: Report, read: Read) -> None:
    page = read(render(report, {}))
    (banner,) = page.with_class("verdict")
    (label,) = [tag for tag in page.of("strong") if "p" in tag.inside and "header" in tag.inside]
    assert label.text == report.verdict.label
    assert banner.text.startswith(report.verdict.label)
    assert report.verdict.line.partition(": ")[2] in banner.text
    order = [tag for tag in page.tags if tag is banner or tag.name in ("table", "nav", "section")]
    assert order[0] is banner
    assert [tag.text for tag in page.with_class("answer")] == list(report.verdict.answers.values())
    said = " ".join(tag.text for tag in page.with_class("asked"))
    assert all(reason in said for reason in report.verdict.reasons)


@pytest.mark.parametrize(
    ("label", "tone"),
    [
        ("orchestration gain", "good"),
        ("format gain only", "bad"),
        ("collapse", "bad"),
        ("no gain", "bad"),
        ("undecided (n too small)", "open"),
        ("a label of tomorrow", "open"),
    ],
)
def test_a_verdict_has_a_tone_beside_its_words(report: Report, label: str, tone: str, read: Read) -> None:
    verdict = Verdict(label, f"{label}: because", ("because",), {"asked": "yes"})  # type: ignore[arg-type]
    (banner,) = read(render(replace(report, verdict=verdict), {})).with_class("verdict")
    assert banner.attributes["class"] == f"verdict {tone}"
    assert banner.text == f"{label} because"


def test_every_section_of_the_report_is_on_the_page_with_its_sentences_and_figures(report: Report, read: Read) -> None:
    page = read(render(report, {}))
    titles = [tag.text for tag in page.of("h2")]
    cells = {tag.text for tag in page.of("td", "th")}
    said = " ".join(tag.text for tag in page.of("p"))
    for section in sections(report):
        assert section.title in titles
        assert all(line in said for line in section.lines)
        for row in section.grid.rows if section.grid is not None else ():
            assert row[0] in cells
    assert titles[:3] == ["Contents", "At a glance", "Who gets the work"]
    assert titles[-1] == "How it was made"


def test_the_contents_lead_to_every_section_and_ids_are_unique(
    results: Make, svg: Draw, read: Read, environment: dict[str, object]
) -> None:
    found = results()
    page = read(render(make_report(found), {"headroom": svg("headroom")}, results=found, environment=environment))
    ids = [tag.attributes["id"] for tag in page.tags if "id" in tag.attributes]
    assert len(ids) == len(set(ids))
    links = [tag.attributes["href"] for tag in page.of("a")]
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    assert {f"#{tag.attributes['id']}" for tag in page.of("section")} <= set(links)
    assert all(tag.attributes["aria-labelledby"] in ids for tag in page.of("section"))


def test_at_a_glance_has_each_level_with_its_interval(report: Report, read: Read) -> None:
    rows = read(render(report, {})).rows("conductor at a glance")
    found = report.orchestration
    assert found.accuracy is not None
    assert found.validity is not None
    assert rows["valid plans"][0] == f"{100 * found.validity.value:.1f} %" == "91.7 %"
    assert rows["right: conductor"][0] == "81.8 %"  # 9 of 11: question 3 is wrong, 4 no workflow, 5 undecided
    assert rows["right: conductor"][1] == f"{100 * found.accuracy.low:.1f} to {100 * found.accuracy.high:.1f}"
    assert rows["best worker alone, chosen on these questions (anna)"][0] == "50.0 %"
    assert rows["random workflows"][0] == "25.0 %"
    assert rows["best fixed workflow"][0] == "50.0 %"
    assert rows["oracle"][0] == "100.0 %"
    assert rows["regret: points below the oracle"][0] == "18.2"
    assert rows["routing entropy, in bits of at most 1.00"][0] == "1.00"


def test_what_was_not_evaluated_is_said_to_be_missing(results: Make, read: Read) -> None:
    page = read(render(make_report(results(others=False)), {}))
    rows = page.rows("conductor at a glance")
    for name in ("best fixed workflow", "random workflows"):
        assert rows[name] == ["-", "not in this evaluation"]
    (missing,) = [tag.text for tag in page.of("section") if tag.attributes["id"] == "not-in-this-report"]
    assert "no plan was replayed" in missing
    assert "the untrained Conductor was not evaluated" in missing
    assert "no curve was given" in missing


def test_where_nothing_was_decided_every_figure_says_why_it_is_missing(results: Make, read: Read) -> None:
    found = results(others=False)
    ours = tuple(
        replace(one, correct=None, status="failed", rounds=()) for one in found.records if one.system == "conductor"
    )
    masked = replace(found, records=ours)
    assert chosen(masked, None) == "conductor", "the one that is asked for, though it never planned"
    page = read(render(make_report(masked), {}, results=masked))
    rows = page.rows("conductor at a glance")
    assert all(cells[0] == "-" and len(cells[1]) > 10 for cells in rows.values())
    assert page.with_class("decided")[0].text == "12 answers: 0 decided, 12 not (12 failed)."
    assert "Who gets the work" not in [tag.text for tag in page.of("h2")]
    assert not page.with_class("value")


def test_a_baseline_has_a_page_too(results: Make, read: Read) -> None:
    page = read(render(make_report(results(), system="random"), {}))
    rows = page.rows("random at a glance")
    assert rows["valid plans"] == ["-", "random writes no plans in words"]
    assert rows["right: random"][0] == "25.0 %"


def test_what_could_not_be_decided_is_counted_beside_the_verdict(report: Report, read: Read) -> None:
    (said,) = read(render(report, {})).with_class("decided")
    assert said.text == "12 answers: 11 decided (1 invalid among the wrong), 1 not (1 failed)."


def test_the_shares_of_workers_stand_by_kind_and_are_shaded(report: Report, read: Read) -> None:
    page = read(render(report, {}))
    rows = page.rows("Share of each worker among the steps, in percent")
    assert list(rows) == ["all", "easy", "hard"]
    assert rows["easy"][0] == "6"
    shares = report.orchestration.routing.by_kind[0].workers
    assert rows["easy"][1].startswith(f"{100 * shares['anna'].value:.1f}")
    shaded = [tag.attributes["class"] for tag in page.of("td") if tag.attributes.get("class", "").startswith("shade-")]
    assert len(shaded) == 6
    style = page.of("style")[0].text
    assert all(f".shade-{shade} " in style for shade in range(SHADES))


def test_costs_are_a_question_s_and_an_unknown_price_is_a_dash(results: Make, read: Read) -> None:
    found = results()
    rows = read(render(make_report(found), {}, results=found)).rows("What a question costs")
    assert rows["worker:anna"] == ["0.0100", "100", "1.00", "50.0", "2.00", "2.00"]
    assert rows["conductor"][:3] == ["0.0200", "100", "1.08"]
    unknown = results(unpriced=1)
    rows = read(render(make_report(unknown), {}, results=unknown)).rows("What a question costs")
    assert rows["conductor"][0] == "-"


def test_how_it_was_made_has_recipe_seed_versions_prices_and_data(
    results: Make, read: Read, environment: dict[str, object]
) -> None:
    found = results()
    page = read(render(make_report(found), {}, results=found, environment=environment))
    facts = dict(zip((tag.text for tag in page.of("dt")), (tag.text for tag in page.of("dd")), strict=True))
    assert facts["seed"] == "7"
    assert facts["packages"] == "openconductor 0.1.0"
    assert facts["python"] == "3.11.7"
    assert facts["sandbox"] == "bubblewrap"
    assert 'systems = ["conductor", "workers"' in page.of("pre")[0].text
    prices = page.rows("Prices of the workers, in US dollars a million tokens")
    assert prices == {"anna": ["3", "15.5"], "bert": ["-", "-"]}
    assert page.rows("The tasks' data") == {"gym": ["12", "drawn", "test", "abc"]}


def test_an_evaluation_that_is_not_whole_says_so(results: Make, read: Read) -> None:
    found = results()
    short = replace(found, records=found.records[:-2])
    page = read(render(make_report(short), {}, results=short))
    assert "2 records of the evaluation are missing" in page.of("h1")[0].text
    assert "2 records of the evaluation are missing" in page.of("dl")[0].text
