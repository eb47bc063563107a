"""The pages about evaluations: verdict, tables, accuracy against cost, who was right where."""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from openconductor.evaluation.eval_config import ALONE
from openconductor.report.runs.numbers_reader import Numbers, NumbersReader
from openconductor.report.runs.run_folders import RunFolder
from openconductor.store import read_store
from openconductor.ui.changes import Changes, PageState
from openconductor.ui.door import PREFIX, Visitor
from openconductor.ui.entrance import Entrance
from openconductor.ui.pages import colour_class
from openconductor.ui.replies import Page, PageProblem, read_page
from openconductor.ui.runs import Runs

WAIT_S = 5.0
"""How long a page waits for numbers before it says that they are being read."""
MARKS = 800
"""Marks of a page of questions, at most: questions times systems times repeats."""
POLL_S = 2.0
"""How often a run that is looked at is looked for changes."""


@dataclass(frozen=True, slots=True)
class EvaluationPages:
    """Shows evaluations, and tells of changes of all runs.

    Attributes:
        runs: finds them.
        entrance: knows who asks.
        streams: tell open pages of changes.
        reader: reads the numbers of evaluations.
    """

    runs: Runs
    entrance: Entrance
    streams: Changes
    reader: NumbersReader = field(default_factory=NumbersReader)

    def evaluation(self, request: Request, visitor: Visitor) -> Page:
        """Show an evaluation: verdict, tables, accuracy against cost, shares by task."""
        run = self.runs.named(request, visitor)
        numbers = self.numbers(run)
        looks = {} if numbers is None else looks_of(numbers)
        version = self._state(run).version
        values = {"run": run, "numbers": numbers, "looks": looks, "version": version}
        return Page("evaluation", f"Evaluation {run.name}", values, lambda: numbers)

    def questions(self, request: Request, visitor: Visitor) -> Page:
        """Show who was right where."""
        run = self.runs.named(request, visitor)
        numbers = self.numbers(run)
        if numbers is None:
            return self.evaluation(request, visitor)
        show = request.query_params.get("show", "all")
        chosen = [
            (place, question)
            for place, question in enumerate(numbers["questions"])
            if show in question["tags"]
        ]
        page = read_page(request.query_params)
        marks = len(numbers["systems"]) * numbers["table"]["repeats"]
        size = max(1, MARKS // marks)
        shown = chosen[(page - 1) * size : page * size]
        data = {"systems": numbers["systems"], "questions": shown, "page": page, "show": show}
        values = dict(
            data,
            run=run,
            looks=looks_of(numbers),
            count=len(chosen),
            more=len(chosen) > page * size,
        )
        return Page("questions", f"Who was right where: {run.name}", values, lambda: data)

    def answer(self, request: Request) -> Response:
        """Lead to the episode of an answer: question, system and repeat, by their places."""
        run = self.runs.named(request, self.entrance.visitor(request))
        numbers = self.numbers(run)
        if numbers is None:
            raise PageProblem(503, "The answers are being read; load this page again.")
        places = request.path_params
        missing = PageProblem(404, "The run keeps no episode of this answer.")
        try:
            system = numbers["systems"][places["system"]]
            question = numbers["questions"][places["question"]]
        except IndexError:
            raise missing from None
        cell = [system, question["task"], question["problem"], places["repeat"]]
        with read_store(run.journal) as store:
            record = store.find_record(json.dumps(cell))
        if record is None or not record["episode"]:
            raise missing
        return RedirectResponse(f"{PREFIX}/episodes/{record['episode']}", 303)

    def changes(self, request: Request) -> Response:
        """Tell of changes of a training or an evaluation."""
        visitor = self.entrance.visitor(request)

        def look() -> PageState:
            return self._state(self.runs.named(request, visitor))

        look()  # a problem is answered before the stream begins
        return self.streams.stream(request, visitor, look, POLL_S)

    def _state(self, run: RunFolder) -> PageState:
        """Return the state of a run's page; that of an evaluation changes with its numbers."""
        is_over = run.state != "running"
        if run.kind == "training":
            return PageState(run.version, is_over)
        numbers = self._read(run)
        return PageState(f"{id(numbers)}-{numbers.done()}", numbers.done() and is_over)

    def _read(self, run: RunFolder) -> Future[Numbers]:
        return self.reader.read(run.folder, run.version, running=run.state == "running")

    def numbers(self, run: RunFolder) -> Numbers | None:
        """Return the numbers of an evaluation; None: they are still being read.

        Raises:
            ConfigError: they cannot be read.
        """
        try:
            return self._read(run).result(WAIT_S)
        except TimeoutError:
            return None


def looks_of(numbers: Numbers) -> dict[str, str]:
    """Return the style class of each system: a worker's, the Conductor's, or that of others."""
    looks = dict.fromkeys(numbers["systems"], "other")
    looks[numbers["ours"]] = colour_class(None)
    for ordinal, worker in enumerate(numbers["workers"]):
        looks[ALONE + worker] = colour_class(ordinal)
    return looks
