"""Builders of small reports, and a reader of pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from html.parser import HTMLParser
from itertools import takewhile
from typing import Any

import pytest
from planted_records import make_record

from openconductor.evaluation.eval_config import EvalConfig, TaskTable
from openconductor.evaluation.records import Record, Results
from openconductor.plots import Picture
from openconductor.report.report import Report, make_report
from openconductor.types import Price

ENVIRONMENT = {
    "python": "3.11.7",
    "platform": "Linux",
    "packages": {"openconductor": "0.1.0", "numpy": None},
    "sandbox": "bubblewrap",
    "inputs": {
        "tasks": {
            "gym": {
                "problems": 12,
                "digest": "abc",
                "source": {"dataset": "drawn", "split": "test", "notes": []},
            }
        }
    },
}
VOID = {"meta", "link", "img", "br", "hr", "input", "col"}
Make = Callable[..., Results]
Draw = Callable[..., Picture]


@dataclass
class Tag:
    """An element of a page."""

    name: str
    attributes: dict[str, str]
    inside: tuple[str, ...]
    text: str = ""


@dataclass
class Page(HTMLParser):
    """All elements of a page in order, each with its own text and that of what it holds."""

    tags: list[Tag] = field(default_factory=list[Tag])
    open: list[Tag] = field(default_factory=list[Tag])

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice"
        attributes = {name: value or "" for name, value in attrs}
        made = Tag(tag, attributes, tuple(outer.name for outer in self.open))
        self.tags.append(made)
        if tag not in VOID:
            self.open.append(made)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop().name == tag

    def handle_data(self, data: str) -> None:
        for tag in self.open:
            tag.text += data

    def of(self, *names: str) -> list[Tag]:
        """The elements of these names."""
        return [tag for tag in self.tags if tag.name in names]

    def with_class(self, name: str) -> list[Tag]:
        """The elements of a class."""
        return [tag for tag in self.tags if name in tag.attributes.get("class", "").split()]

    def table(self, caption: str) -> list[Tag]:
        """The elements of the table with a caption, up to the next table."""
        (start,) = [
            place
            for place, tag in enumerate(self.tags)
            if tag.name == "caption" and tag.text == caption
        ]
        rest = self.tags[start + 1 :]
        return list(takewhile(lambda tag: tag.name != "table", rest))

    def rows(self, caption: str) -> dict[str, list[str]]:
        """The rows of the table with a caption: their headings, and their cells that hold text."""
        rows: dict[str, list[str]] = {}
        row: list[str] = []
        for tag in self.table(caption):
            if tag.name == "th" and tag.attributes.get("scope") == "row":
                row = rows[tag.text] = []
            elif tag.name == "td" and tag.text:
                row.append(tag.text)
        return rows


def read_page(text: str) -> Page:
    """Parse a page; every element that is opened must be closed, in order."""
    page = Page()
    page.feed(text)
    page.close()
    assert not page.open
    return page


def make_results(
    *,
    names: tuple[str, str] = ("anna", "bert"),
    kinds: tuple[str, str] = ("easy", "hard"),
    name: str = "trial",
    others: bool = True,
    unpriced: int = 0,
) -> Results:
    """The results of an evaluation of two workers, random workflows, an oracle and a Conductor."""
    first, second = (f"worker:{worker}" for worker in names)
    records: list[Record] = []

    def add(system: str, right: bool | None, plan: tuple[int, ...] | None, **more: Any) -> None:
        options: dict[str, Any] = {"dollars": "0.02", "seconds": 2.0, "calls": len(plan or ())}
        record = make_record(system, f"q{question:02}", right, plan, **(options | more))
        records.append(replace(record, task="gym", kind=kinds[question % 2]))

    for question in range(12):
        plan = (question % 2,) if question < 10 else (0, 1)
        right = None if question == 5 else question not in (3, 4)
        text = None if question == 4 else plan
        add("conductor", right, text, planned=True, unpriced=unpriced)
        add(first, question % 2 == 0, (0,), dollars="0.01")
        add(second, question % 3 == 1, (1,), dollars="0.001")
        if others:
            add("random", question % 4 == 0, (1,))
            add("oracle", True, (0,))
            add("best_fixed", question % 2 == 0, (0, 1))
    systems = ("conductor", "workers", *(("random", "best_fixed", "oracle") if others else ()))
    config = EvalConfig(name=name, systems=systems, task=(TaskTable("gym"),), seed=7)
    prices = {names[0]: Price(Decimal(3), Decimal("15.5")), names[1]: None}
    return Results.of_records(
        config, records, workers=dict(enumerate(names)), prices=prices, expected={"gym": 12}
    )


@pytest.fixture(scope="session")
def results() -> Make:
    """Makes the results of an evaluation."""
    return make_results


@pytest.fixture(scope="session")
def read() -> Callable[[str], Page]:
    """Reads a page."""
    return read_page


@pytest.fixture(scope="session")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Draw:
    """A figure that was written, as ``plots.save_all`` gives it."""

    def write(
        name: str,
        *,
        title: str = "A title",
        caption: str = "n = 12 questions.",
        empty: bool = False,
    ) -> Picture:
        svg = tmp_path_factory.mktemp("figures") / f"{name}.svg"
        svg.write_text(
            '<svg xmlns="http://www.w3.org/2000/svg"><path d="M 0 0 L 9 9"/></svg>',
            encoding="utf-8",
        )
        return Picture(title, caption, empty, svg, svg.with_suffix(".png"))

    return write


@pytest.fixture(scope="session")
def environment() -> dict[str, object]:
    """The environment in a run's folder."""
    return ENVIRONMENT


@pytest.fixture(scope="session")
def report() -> Report:
    """A report."""
    return make_report(make_results())
