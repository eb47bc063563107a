"""The requests of the door: who a visitor is, entering by a link or a key, and leaving."""

from __future__ import annotations

import hmac
import re
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from openconductor.ui.door import PREFIX, SESSION_S, Door, Visitor
from openconductor.ui.replies import PageProblem, as_json

Form = ImmutableMultiDict[str, str]

_MOST_BODY = 10_000  # bytes of a form
_LINE_END = re.compile("\r\n?")


class Entrance:
    """Answers what strangers and visitors send to the door.

    Args:
        door: decides who may look.
    """

    def __init__(self, door: Door) -> None:
        self.door = door

    def visitor(self, request: Request) -> Visitor:
        """Return who sends a request.

        Raises:
            PageProblem: a stranger.
        """
        visitor = self.door.visitor(request.headers, request.cookies)
        if visitor is None:
            raise PageProblem(401, "This page is for those who have its link or a key.")
        return visitor

    async def session(self, request: Request) -> Response:
        """Begin a session (POST), or say whether there is one (GET)."""
        if request.method != "POST":
            self.visitor(request)
            return Response(status_code=204)
        form = await self.form(request)
        session = self.door.exchange(token=form.get("token", ""), key=form.get("key", "").strip())
        if session is None:
            raise PageProblem(401, "That link was used already or is too old, or the key is wrong.")
        answer = RedirectResponse(_own_address(form.get("next", "")), 303)
        origin = request.headers.get("origin", "")  # what the browser sees, before any proxy
        answer.set_cookie(
            self.door.cookie,
            session,
            max_age=int(SESSION_S),
            path=PREFIX,
            secure=urlsplit(origin).scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return answer

    async def leave(self, request: Request) -> Response:
        """End the session."""
        await self.form(request)
        self.door.leave(request.cookies)
        answer = RedirectResponse(f"{PREFIX}/episodes", 303)
        answer.delete_cookie(self.door.cookie, path=PREFIX)
        return answer

    async def link(self, request: Request) -> Response:
        """Give the holder of a key (in a header) a link that opens the page once."""
        holder = self.door.holder(request.headers)
        if holder is None:
            raise PageProblem(401, "Send a key of this server as `Authorization: Bearer KEY`.")
        token = self.door.new_token(holder.key)
        return as_json({"link": f"{PREFIX}/episodes#token={token}"})

    async def form(self, request: Request, most: int = _MOST_BODY) -> Form:
        """Return the fields of a form that this page itself sent, of ``most`` bytes.

        Raises:
            PageProblem: another page sent it, or it is too large.
        """
        if not self.door.is_own_page(request.headers):
            raise PageProblem(403, "This request did not come from the page itself.")
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > most:
                raise PageProblem(413, "The form is too large.")
        fields = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
        return Form([(name, with_plain_lines(value)) for name, value in fields])

    async def spending_form(self, request: Request, most: int = _MOST_BODY) -> Form:
        """Return the fields of a form that spends: it must hold the token of its session.

        Raises:
            PageProblem: see ``form``; or the token is missing or wrong.
        """
        form = await self.form(request, most)
        token = self.door.form_token(request.cookies)
        given = form.get("form_token", "")
        if not token or not hmac.compare_digest(token.encode(), given.encode()):
            raise PageProblem(403, "This form is not of your session. Go back, reload, try again.")
        return form


def with_plain_lines(text: str) -> str:
    """Return a text whose lines end in a newline alone; a browser puts a return before it."""
    return _LINE_END.sub("\n", text)


def _own_address(address: str) -> str:
    """Return an address of this site; anything else leads to the list."""
    if address.startswith(f"{PREFIX}/") and "\\" not in address:
        return address
    return f"{PREFIX}/episodes"
