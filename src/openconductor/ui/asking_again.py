"""Asking again: the steps to edit, the price, and the new episode beside the old one."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import cast

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from openconductor.store import EpisodeLine, StoredEpisode
from openconductor.types import Access, Budget
from openconductor.ui.asker import EditedStep, EpisodeChange, Quote, results_of
from openconductor.ui.asking import FORM_BYTES, SpendingPages, read_dollars
from openconductor.ui.door import PREFIX, Visitor
from openconductor.ui.entrance import Form
from openconductor.ui.pages import as_shown
from openconductor.ui.parts import rounds_of
from openconductor.ui.replies import Page, PageProblem

_SET_ANEW = {"do", "form_token", "dollars", "calls"}  # fields, by the page of the price


class AgainPages(SpendingPages):
    """Plays rounds again, with other steps, and plans anew."""

    def form(self, request: Request, visitor: Visitor) -> Page:
        """Show the steps of a round, to be edited; ``?part=0-2`` chooses a round and a step."""
        line, stored = self._find(request, visitor)
        return self._steps_page(line, stored, Form(request.query_params.multi_items()), visitor)

    def _steps_page(
        self, line: EpisodeLine, stored: StoredEpisode, form: Form, visitor: Visitor
    ) -> Page:
        """Return the page of the steps, with what a form holds of them already."""
        rounds = [played for played in rounds_of(stored, is_stopped=True) if played.steps]
        number, _, step = form.get("part", form.get("round", "")).partition("-")
        chosen = rounds[-1] if rounds else None
        for played in rounds:
            if str(played.index) == number:
                chosen = played
        values = {
            "line": line,
            "round": chosen,
            "rounds": rounds,
            "marked": step,
            "given": form,
            "workers": self.asker.workers(visitor.key),
        }
        offer = {"workers": values["workers"], "rounds": [played.index for played in rounds]}
        return Page("again", "Ask again", values, lambda: offer)

    async def ask(self, request: Request) -> Page | Response:
        """Say the price of a change, make it within a budget (``do=ask``), or edit it further."""
        visitor = self.entrance.visitor(request)
        form = await self.entrance.spending_form(request, FORM_BYTES)
        line, stored = await asyncio.to_thread(self._find, request, visitor)
        if form.get("do") == "edit":
            return await asyncio.to_thread(self._steps_page, line, stored, form, visitor)
        change = _read_change(form, stored)
        quote = await asyncio.to_thread(self.asker.quote, visitor.key, line.model, change)
        if form.get("do") != "ask":
            return _price_page(stored, quote, form)
        budget = _read_budget(form)
        later = await self.asker.ask_again(visitor.key, line.model, change, budget)
        await self.links.add(stored.id, later, quote.change)
        return RedirectResponse(f"{PREFIX}/episodes/{later}", 303)

    def _find(self, request: Request, visitor: Visitor) -> tuple[EpisodeLine, StoredEpisode]:
        line, stored = self.episodes.find_episode(request.path_params["identifier"], visitor)
        if not stored.question:
            raise PageProblem(409, "The texts of this episode are not kept, so it cannot be asked.")
        return line, stored


def _price_page(stored: StoredEpisode, quote: Quote, form: Form) -> Page:
    """Return the page that says what a change costs, and asks for its budget."""
    likely = [price.about for price in quote.prices if price.about is not None]
    values = {
        "episode": stored,
        "change": quote.change,
        "costs": quote.prices,
        "about": sum(likely, Decimal(0)),
        "is_known": len(likely) == len(quote.prices),
        "budget": quote.budget,
        "fields": [pair for pair in form.multi_items() if pair[0] not in _SET_ANEW],
    }
    return Page("again_price", "What it costs", values, dict)


# ── the form ──────────────────────────────────────────────────────────────────────────────────────
def _read_change(form: Form, stored: StoredEpisode) -> EpisodeChange:
    """Return what is asked again.

    Raises:
        PageProblem: there is no such round, or no step is left.
    """
    if form.get("what") == "plan":
        return EpisodeChange(stored)
    number = _read_number(form, "round", len(stored.rounds) - 1)
    before = results_of(stored, number)
    kept = [place for place in range(len(before)) if f"drop-{place}" not in form]
    if not kept:
        raise PageProblem(400, "No step is left: keep at least one, or plan anew.")
    steps: list[EditedStep] = []
    for place in kept:
        old = before[place].step
        name = stored.workers.get(old.worker, "")
        edited = EditedStep(
            source=place,
            worker=form.get(f"worker-{place}", name),
            subtask=_read_subtask(form, place, old.subtask),
            access=_new_access(cast("Access", old.access), kept),
            anew=f"anew-{place}" in form,
        )
        steps.append(edited)
    return EpisodeChange(stored, number, tuple(steps))


def _read_subtask(form: Form, place: int, before: str) -> str:
    """Return a subtask; a text that came back as the page showed it was not edited."""
    text = form.get(f"subtask-{place}", before).strip()
    return before if text == as_shown(before).strip() else text


def _new_access(access: Access, kept: list[int]) -> Access:
    """Return the steps that a step sees, by their new places."""
    if access == "all":
        return access
    return tuple(kept.index(seen) for seen in access if seen in kept)


def _read_budget(form: Form) -> Budget:
    """Return the budget of a form.

    Raises:
        PageProblem: there is none, or it is no number.
    """
    dollars = read_dollars(form.get("dollars", ""))
    if dollars is not None:
        return Budget(dollars=dollars)
    if not form.get("calls"):
        raise PageProblem(400, "budget: it is missing; expected the most that this may cost")
    return Budget(calls=_read_number(form, "calls", 1_000_000))


def _read_number(form: Form, name: str, most: int) -> int:
    text = form.get(name, "")
    if not text.isdecimal() or len(text) > 9 or int(text) > most:
        raise PageProblem(400, f"{name}: got {text[:40]!r}, expected a number up to {most}")
    return int(text)
