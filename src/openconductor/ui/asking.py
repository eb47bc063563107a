"""Asking on the page: the box, follow-up turns, and stopping what runs.

Each request here spends, so each needs the form token of its session.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from openconductor.prompt import QUESTION_LIMIT, check_turns
from openconductor.store import StoredEpisode
from openconductor.types import Message
from openconductor.ui.asker import Asker, PageQuestion
from openconductor.ui.door import PREFIX, Visitor
from openconductor.ui.entrance import Entrance, Form
from openconductor.ui.episodes import EpisodePages, can_go_on
from openconductor.ui.links import Links
from openconductor.ui.replies import Page, PageProblem

FORM_BYTES = 9 * QUESTION_LIMIT + 10_000
"""The most bytes of a form with a question; a character may take nine."""


@dataclass(frozen=True, slots=True)
class SpendingPages:
    """Pages that take forms which spend.

    Attributes:
        asker: answers.
        entrance: knows who asks.
        episodes: finds the episodes that are asked again, or that questions go on from.
        links: keeps which episode was made from which.
    """

    asker: Asker
    entrance: Entrance
    episodes: EpisodePages
    links: Links


class AskPages(SpendingPages):
    """Takes questions."""

    def form(self, request: Request, visitor: Visitor) -> Page:
        """Show the box, filled in as the address says."""
        return self._box(Form(request.query_params.multi_items()), visitor)

    def _box(self, form: Form, visitor: Visitor, fault: str = "") -> Page:
        """Return the page of the box; ``fault`` says why a question was rejected."""
        offer = {
            "models": self.asker.models(visitor.key),
            "workers": self.asker.workers(visitor.key),
            "example": self.asker.example,
        }
        values = {
            **offer,
            "chosen": form.getlist("workers") or offer["workers"],
            "form": form,
            "follows": self._follows(form, visitor),
            "fault": fault,
        }
        return Page("ask", "Ask", values, lambda: offer)

    def _follows(self, form: Form, visitor: Visitor) -> StoredEpisode | None:
        """Return the episode that a question goes on from."""
        identifier = form.get("follows", "")
        return self.episodes.find_episode(identifier, visitor)[1] if identifier else None

    async def ask(self, request: Request) -> Response:
        """Take a question, and lead to its episode, which fills in while it runs."""
        visitor = self.entrance.visitor(request)
        form = await self.entrance.spending_form(request, FORM_BYTES)
        follows = await asyncio.to_thread(self._follows, form, visitor)
        try:
            question = _read_question(form, follows)
            identifier = await self.asker.ask(visitor.key, question)
        except PageProblem as problem:
            page = await asyncio.to_thread(self._box, form, visitor, problem.detail)
            raise PageProblem(problem.status, problem.detail, page) from problem
        if follows is not None:
            await self.links.add(follows.id, identifier, "a further turn")
        return RedirectResponse(f"{PREFIX}/episodes/{identifier}", 303)

    async def stop(self, request: Request) -> Response:
        """Stop an episode, and lead back to it."""
        visitor = self.entrance.visitor(request)
        await self.entrance.spending_form(request)
        identifier = request.path_params["identifier"]
        line, _ = await asyncio.to_thread(self.episodes.find_episode, identifier, visitor)
        self.asker.stop(visitor.key, line.id)
        return RedirectResponse(f"{PREFIX}/episodes/{line.id}", 303)


def _read_question(form: Form, follows: StoredEpisode | None) -> PageQuestion:
    """Return the question of a form.

    Raises:
        PageProblem: it is blank or cannot go on from that episode, or the budget is no amount.
    """
    text = form.get("text", "").strip()
    if not text:
        raise PageProblem(400, "The question is blank.")
    turns = (Message("user", text),)
    if follows is not None:
        if not can_go_on(follows):
            raise PageProblem(409, "That episode has no text to go on from.")
        turns = (*check_turns(follows.question), Message("assistant", follows.answer or ""), *turns)
    dollars = read_dollars(form.get("dollars", ""))
    return PageQuestion(turns, form.get("model", ""), form.getlist("workers"), dollars)


def read_dollars(text: str) -> Decimal | None:
    """Return an amount of US dollars; None: the text is blank.

    Raises:
        PageProblem: it is something else.
    """
    if not text.strip():
        return None
    try:
        amount = Decimal(text.strip().removeprefix("$"))
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or amount < 0:
        raise PageProblem(400, f"budget: got {text[:40]!r}, expected US dollars such as 0.05")
    return amount
