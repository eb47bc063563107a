"""The page as a whole: the verdict, the figures at a glance, every section of the report, how it was made.

In: a Report, files of figures. Out: one HTML file. The same report and figures give the same bytes.

The page forbids itself everything by its content security policy, but for its own style sheet (by its hash) and images
that it holds itself; all text goes through ``elements``, so a worker named ``<script>`` is a worker named ``<script>``.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from xml.etree.ElementTree import Element

from openconductor.evaluation.results import Results
from openconductor.reporting.page.elements import clean, element, markup, paragraphs
from openconductor.reporting.page.glance import glance, undecided, verdict
from openconductor.reporting.page.origin import costs, origin
from openconductor.reporting.page.pictures import picture
from openconductor.reporting.page.tables import of_grid, shares_of_workers
from openconductor.reporting.report import Report
from openconductor.reporting.rows import heading, sections
from openconductor.reporting.sections import Section
from openconductor.storage import make_folder, write_whole


def write_page(
    report: Report,
    figures: Mapping[str, Path],
    path: Path,
    *,
    results: Results | None = None,
    environment: Mapping[str, object] | None = None,
) -> None:
    """Write the report as one self-contained HTML file, whole or not at all.

    Args:
        report: what it says.
        figures: files of ``plots`` (SVG or PNG) by the figure's name; each becomes a part of the page.
        path: where it goes; its folder is made where it is not there.
        results: what the report was made of: adds what the systems cost, and the recipe.
        environment: what the run's folder says about where it was made (``evaluation.folder.read_folder``): adds
            versions and the tasks' data.

    Raises:
        ConfigError: a figure is neither an SVG nor a PNG, or it is broken.
        JournalError: a figure cannot be read, or the page cannot be written.
    """
    text = render(report, figures, results=results, environment=environment)
    make_folder(path.parent)
    write_whole(path, text)


def render(
    report: Report,
    figures: Mapping[str, Path],
    *,
    results: Results | None = None,
    environment: Mapping[str, object] | None = None,
) -> str:
    """The page's text; arguments and errors as for ``write_page``."""
    parts = list(_parts(report, figures, results, environment))
    name = f"{report.name}: orchestration report"
    body = element(
        "body",
        element("a", "To the figures", href="#main", class_="skip"),
        element(
            "header",
            element("p", name, class_="kicker"),
            element("h1", heading(report)),
            *verdict(report.verdict),
            undecided(report.orchestration),
        ),
        element("nav", element("h2", "Contents"), _contents(parts), aria_label="Contents"),
        element("main", *parts, id="main"),
        element(
            "footer",
            element(
                "p",
                "Shares are percentages with 95 % intervals, clustered by question; differences are percentage points, "
                "paired by question. What could not be decided counts neither as right nor as wrong.",
            ),
        ),
    )
    page = element("html", _head(name, report.verdict.line), body, lang="en")
    return f"<!doctype html>\n{markup(page)}\n"


def _head(name: str, line: str) -> Element:
    style = files("openconductor.reporting.page").joinpath("page.css").read_text("utf-8")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        Element("meta", {"http-equiv": "Content-Security-Policy", "content": policy}),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="description", content=line),
        element("link", rel="icon", href="data:,"),
        element("title", name),
    )
    sheet = Element("style")
    sheet.text = style  # as it is: the text of a style sheet is no HTML, and its hash is that of these very letters
    head.append(sheet)
    return head


# ── the parts ────────────────────────────────────────────────────────────────────────────────────────────────────────
def _parts(
    report: Report,
    figures: Mapping[str, Path],
    results: Results | None,
    environment: Mapping[str, object] | None,
) -> Iterator[Element]:
    """The sections of the page, in order; each figure once, at the first section that asks for it."""
    left = dict(figures)
    found = report.orchestration
    taken: set[str] = set()

    def part(title: str, *children: Element) -> Element:
        name = _slug(title, taken)
        title_id = f"{name}-title"
        return element("section", element("h2", title, id=title_id), *children, id=name, aria_labelledby=title_id)

    yield part("At a glance", *glance(found))
    routing = found.routing
    groups = (routing.whole, *routing.by_task, *routing.by_kind)
    if routing.whole.workers:
        caption = "Share of each worker among the steps, in percent"
        yield part("Who gets the work", shares_of_workers(caption, groups))
    for section in sections(report):
        yield part(section.title, *_inside(section, left))
    if left:
        rest = [picture(name, file) for name, file in left.items()]
        yield part("More figures", element("div", *rest, class_="figures"))
    if absent := _absent(report):
        yield part("Not in this report", element("ul", *(element("li", one) for one in absent)))
    if results is not None:
        yield part("What it cost", *costs(results))
    yield part("How it was made", *origin(report, results, environment))


def _inside(section: Section, left: dict[str, Path]) -> Iterator[Element]:
    yield from paragraphs(section.lines)
    if section.grid is not None and section.grid.rows:
        yield of_grid(section.title, section.grid)
    shown = [picture(name, left.pop(name)) for name in section.figures if name in left]
    notes = [one for one in shown if one.tag == "p"]
    if len(notes) < len(shown):
        yield element("div", *(one for one in shown if one.tag != "p"), class_="figures")
    yield from notes


def _absent(report: Report) -> list[str]:
    """What this report could say and does not, for nobody measured it."""
    found = report.orchestration
    asked = {
        "What each step is worth: no plan was replayed with a step taken away.": found.counterfactuals,
        "What the training changed: the untrained Conductor was not evaluated on these questions.": found.change,
        "How the training went: no curve was given.": report.training,
        "What the pool could give: no worker alone has a decided answer.": report.headroom,
    }
    return [words for words, there in asked.items() if there is None]


def _contents(parts: list[Element]) -> Element:
    links = [element("a", part[0].text or "", href=f"#{part.get('id')}") for part in parts]
    return element("ol", *(element("li", link) for link in links))


def _slug(title: str, taken: set[str]) -> str:
    """A short id that no other part has."""
    base = re.sub(r"[^a-z0-9]+", "-", clean(title).lower()).strip("-") or "part"
    name, number = base, 2
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    taken.add(name)
    return name
