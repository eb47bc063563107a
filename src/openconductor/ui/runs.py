"""The trainings and evaluations that the pages show: their list, and who may see them."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request

from openconductor.report.runs.run_folders import RunFolder, RunKind, find_runs
from openconductor.store.serialisation import plain
from openconductor.ui.door import PREFIX, Visitor
from openconductor.ui.replies import Page, PageProblem

MOST_LISTED = 200
"""The most runs of the list."""


class Runs:
    """Finds the runs below a folder.

    Args:
        root: the folder; the runs stand in it, or in folders of it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def journals(self) -> list[str | Path]:
        """Return the places of the stores of all runs, the latest first."""
        return [run.journal for run in find_runs(self.root)]

    def find(self, name: str, kind: RunKind, visitor: Visitor) -> RunFolder:
        """Return the run of a name, if a visitor may see it.

        Raises:
            PageProblem: there is none, or it is of another kind, or the visitor may not.
        """
        check_may_see_runs(visitor)
        for run in find_runs(self.root, name):
            if run.kind == kind:
                return run
        raise PageProblem(404, f"There is no {kind} {name!r} here.")

    def named(self, request: Request, visitor: Visitor) -> RunFolder:
        """Return the run that the address of a request names.

        Raises:
            PageProblem: there is none, or the visitor may not see it.
        """
        kind: RunKind = "evaluation"
        if f"{PREFIX}/trainings/" in request.url.path:
            kind = "training"
        return self.find(request.path_params["run"], kind, visitor)

    def page(self, _request: Request, visitor: Visitor) -> Page:
        """Show all runs, the latest first."""
        check_may_see_runs(visitor)
        runs = find_runs(self.root)
        shown = runs[:MOST_LISTED]
        values = {"root": self.root, "runs": shown, "all": len(runs)}
        return Page("runs", "Runs", values, lambda: {"runs": plain(shown)})


def check_may_see_runs(visitor: Visitor) -> None:
    """Check that a visitor sees all of a store.

    Raises:
        PageProblem: the visitor holds a key, which shows its own episodes only.
    """
    if visitor.key:
        raise PageProblem(404, "A key shows its own episodes, and nothing of others.")
