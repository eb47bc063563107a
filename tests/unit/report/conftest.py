"""Builders of small reports, and a reader of pages that knows no more of HTML than a parser does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from html.parser import HTMLParser

import pytest

from openconductor.evaluation.eval_config import EvalConfig, TaskTable
from openconductor.evaluation.records import Record, Results, RoundRecord, Status
from openconductor.plots import Picture
from openconductor.report.report import Report, make_report
from openconductor.types import Price, Step, Usage, Workflow

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
        made = Tag(
            tag, {name: value or "" for name, value in attrs}, tuple(one.name for one in self.open)
        )
        self.tags.append(made)
        if tag not in VOID:
            self.open.append(made)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop().name == tag

    def handle_data(self, data: str) -> None:
        for one in self.open:
            one.text += data

    def of(self, *names: str) -> list[Tag]:
        """The elements of these names."""
        return [tag for tag in self.tags if tag.name in names]

    def with_class(self, name: str) -> list[Tag]:
        """The elements of a class."""
        return [tag for tag in self.tags if name in tag.attributes.get("class", "").split()]

    def rows(self, caption: str) -> dict[str, list[str]]:
        """The rows of the table with a caption: the heading of each, and its cells that are not empty."""
        start = next(
            place
            for place, tag in enumerate(self.tags)
            if tag.name == "caption" and tag.text == caption
        )
        found: dict[str, list[str]] = {}
        for tag in self.tags[start + 1 :]:
            if tag.name == "table":
                break
            if tag.name == "th" and tag.attributes.get("scope") == "row":
                found[tag.text] = []
            elif tag.name == "td" and found and tag.text:
                found[list(found)[-1]].append(tag.text)
        return found


def read_page(text: str) -> Page:
    """Parse a page; every element that is opened must be closed, in order."""
    page = Page()
    page.feed(text)
    page.close()
    assert not page.open
    return page


def make_record(
    system: str,
    question: int,
    correct: bool | None,
    workers: tuple[int, ...] | None,
    *,
    kind: str,
    planned: bool = False,
    dollars: str = "0.02",
    unpriced: int = 0,
) -> Record:
    """One record of one round; no workers is a text that is no workflow."""
    steps = () if workers is None else tuple(Step(worker, "do it", ()) for worker in workers)
    status: Status = "failed" if correct is None else "graded"
    if workers is None:
        correct, status = False, "invalid"
    rounds = (
        RoundRecord(Workflow(steps) if steps else None, planned, "" if steps else "missing_list"),
    )
    usage = Usage(80, 0, 20, 0, Decimal(dollars), unpriced, 1.5)
    return Record(
        *(
            system,
            "gym",
            f"q{question:02}",
            0,
            kind,
            correct,
            status,
            "4",
            "4",
            "",
            rounds,
            len(steps),
            usage,
            2.0,
        )
    )


def make_results(
    *,
    names: tuple[str, str] = ("anna", "bert"),
    kinds: tuple[str, str] = ("easy", "hard"),
    name: str = "trial",
    others: bool = True,
    unpriced: int = 0,
) -> Results:
    """The results of an evaluation of two workers, random workflows, an oracle and a Conductor."""
    records: list[Record] = []
    for question in range(12):
        kind = kinds[question % 2]
        right = question != 3
        flow = (question % 2,) if question < 10 else (0, 1)
        first, second = (f"worker:{one}" for one in names)
        records += [
            make_record(
                "conductor",
                question,
                None if question == 5 else right,
                None if question == 4 else flow,
                kind=kind,
                planned=True,
                unpriced=unpriced,
            ),
            make_record(first, question, question % 2 == 0, (0,), kind=kind, dollars="0.01"),
            make_record(second, question, question % 3 == 1, (1,), kind=kind, dollars="0.001"),
        ]
        if others:
            records += [
                make_record("random", question, question % 4 == 0, (1,), kind=kind),
                make_record("oracle", question, True, (0,), kind=kind),
                make_record("best_fixed", question, question % 2 == 0, (0, 1), kind=kind),
            ]
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
    """What a run's folder says about where it was made."""
    return ENVIRONMENT


@pytest.fixture(scope="session")
def report() -> Report:
    """A report."""
    return make_report(make_results())
