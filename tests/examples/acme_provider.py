"""A provider as another package ships it, with retries, prices and replay."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import openconductor as oc

Post = Callable[[str, Mapping[str, object], str], Awaitable[tuple[int, dict[str, Any]]]]
"""Send a body with a key to a URL; return the status and the answer."""


class AcmeProvider(oc.Provider):
    """A model of the (imaginary) vendor Acme, who says in each answer what it cost.

    Args:
        model: the model's name.
        region: where it runs.
        post: sends the request.
    """

    remote = True
    prices_itself = True
    api_key_env = "ACME_API_KEY"

    def __init__(self, model: str, *, region: str = "eu", post: Post | None = None) -> None:
        self.model = model
        self.base_url = f"https://{region}.acme.example/v1"
        self.identity = f"acme {model} {self.base_url}"
        self._post = post or post_json

    async def complete(
        self,
        messages: Sequence[oc.Message],
        sampling: oc.Sampling,
        *,
        call: oc.CallContext,
        on_text: Callable[[str], None] | None = None,
    ) -> oc.Completion:
        key = os.environ.get("ACME_API_KEY", "")
        if not key:
            raise oc.AuthFailed("ACME_API_KEY is not set")
        body: dict[str, object] = {
            "model": self.model,
            "turns": [[message.role, message.content] for message in messages],
            "limit": sampling.max_tokens,
            **sampling.body,
        }
        status, answer = await self._post(f"{self.base_url}/complete", body, key)
        check_status(status, answer)
        if on_text is not None:
            on_text(answer["text"])
        usage = oc.Usage(
            input_tokens=answer["read"],
            output_tokens=answer["written"],
            dollars=Decimal(answer["cost"]),
        )
        finish_reason = "length" if answer["cut"] else "stop"
        return oc.Completion(
            answer["text"], usage=usage, finish_reason=finish_reason, body_sent=body
        )


def check_status(status: int, answer: Mapping[str, Any]) -> None:
    """Raise the error that a status stands for; its class decides about retries and the bill."""
    if status in (401, 403):
        raise oc.AuthFailed(answer["error"], status=status)
    if status == 429:
        raise oc.RateLimited(answer["error"], retry_after=answer.get("wait"))
    if status >= 500:
        raise oc.ServerFailed(answer["error"], status=status)
    if status >= 400:
        raise oc.Rejected(answer["error"], status=status)


async def post_json(url: str, body: Mapping[str, object], key: str) -> tuple[int, dict[str, Any]]:
    """Send the request. A real provider uses its HTTP library here."""
    raise oc.Unreachable(f"{url}: Acme does not exist")
