"""Earlier answers that a conversation refers to: by id, or by results of tool calls."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from openconductor.calls.options import offered_calls
from openconductor.prompt import check_turns
from openconductor.serving.apis.wire import (
    RECALLS,
    ClientRequest,
    Json,
    RequestFailed,
    parse_call_id,
)
from openconductor.serving.turn import ToolTurn, served_calls
from openconductor.store import SERVED, SHOWN, Store, StoredEpisode
from openconductor.store.episode_json import episode_json
from openconductor.types import Message

REMEMBERED = 256
"""Answers with tool calls that are kept in memory; older ones are read from the store."""
HELD = 50_000_000
"""The most characters of them."""


class EarlierAnswer(NamedTuple):
    """An answer of a tenant, as it was kept.

    Attributes:
        record: of its request.
        episode: its episode.
    """

    record: Mapping[str, Any]
    episode: StoredEpisode

    @property
    def has_texts(self) -> bool:
        """True if the episode was answered, and its texts are there."""
        is_stored = self.record.get("store", True)
        return bool(is_stored and self.episode.question and self.episode.answer is not None)

    @property
    def turns(self) -> tuple[Message, ...]:
        """The conversation, without the turns that belong to its request only."""
        return check_turns(self.episode.question)[self.record["instructed"] :]


class History:
    """Finds the earlier answers of a tenant. Those of other tenants are unknown.

    Args:
        store: keeps the episodes and their records.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tool_turns: OrderedDict[tuple[str, str], ToolTurn] = OrderedDict()  # key, episode
        self._held = 0

    def remember(self, key: str, episode: str, turn: ToolTurn) -> None:
        """Keep an answer that called tools in memory."""
        self._tool_turns[key, episode] = turn
        self._held += _size(turn)
        while len(self._tool_turns) > REMEMBERED or self._held > HELD:
            _, oldest = self._tool_turns.popitem(last=False)
            self._held -= _size(oldest)

    async def complete(self, request: ClientRequest, key: str) -> tuple[Message, ...]:
        """Return a request's turns, with the conversation and the texts that they refer to.

        Raises:
            RequestFailed: the key has no such answer, or its text was not kept.
        """
        turns = request.turns
        if request.previous is not None:
            earlier = await self._conversation(request.previous, key)
            if earlier is None:
                raise RequestFailed(
                    404,
                    "previous_response_not_found",
                    f"previous_response_id: got 'resp_{request.previous}', which is not the id of "
                    "an earlier answer of this key",
                    param="previous_response_id",
                )
            own = request.instructed
            turns = (*turns[:own], *earlier, *turns[own:])
        return await self._recall(turns, key)

    async def _recall(self, turns: tuple[Message, ...], key: str) -> tuple[Message, ...]:
        texts: dict[str, str] = {}
        for turn in turns:
            for part in turn.parts:
                episode = str(part.get(RECALLS, ""))
                if not episode or episode in texts:
                    continue
                earlier = await self._conversation(episode, key)
                if earlier is None:
                    message = f"input: there is no message 'msg_{episode}'"
                    raise RequestFailed(404, "item_not_found", message, param="input")
                texts[episode] = earlier[-1].content
        return tuple(_recalled(turn, texts) for turn in turns) if texts else turns

    async def tool_turn(self, turns: Sequence[Message], key: str) -> ToolTurn | None:
        """Return the earlier answer whose tool calls a conversation ends with the results of.

        None: there are no results, or they are not all of one answer of this key.
        """
        _, since = _split_at_answer(turns)
        calls = [parse_call_id(tool_call_id(turn)) for turn in since if turn.role == "tool"]
        episodes = {None if call is None else call[0] for call in calls}
        if len(episodes) != 1:
            return None
        (episode,) = episodes
        if episode is None:
            return None
        return await self._tool_turn(episode, key)

    async def _tool_turn(self, episode: str, key: str) -> ToolTurn | None:
        """Return an earlier answer that called tools, from memory or from the store."""
        remembered = self._tool_turns.get((key, episode))
        if remembered is not None:
            return remembered
        earlier = await asyncio.to_thread(self._find, episode, key)
        return None if earlier is None else _find_tool_turn(earlier.episode)

    async def _conversation(self, episode: str, key: str) -> tuple[Message, ...] | None:
        """Return the turns of an earlier answer and the answer; None: unknown, or not kept."""
        earlier = await asyncio.to_thread(self._find, episode, key, rounds=False)
        if earlier is None or not earlier.has_texts:
            return None
        parts: tuple[Json, ...] = ()
        if earlier.record.get("tools"):
            called = await self._tool_turn(episode, key)
            if called is not None:
                parts = ({"tool_calls": served_calls(called.calls, episode)},)
        return (*earlier.turns, Message("assistant", earlier.episode.answer or "", parts))

    def response(self, identifier: str, key: str) -> tuple[EarlierAnswer, Mapping[str, Any]] | None:
        """Return an answer of the Responses API, and the record of what else was shown of it.

        None: unknown, not kept, or deleted.
        """
        answer = self._find(identifier, key)
        shown = self._store.find_record(f"{SHOWN}{identifier}")
        if answer is None or shown is None or not answer.has_texts or "settings" not in shown:
            return None
        return answer, shown

    def delete(self, identifier: str, key: str) -> None:
        """Remove an answer's texts: from now on its id is unknown."""
        record = self._store.find_record(f"{SERVED}{identifier}") or {}
        self._store.put_record(f"{SERVED}{identifier}", {**record, "store": False}, texts=False)
        self._store.remove_texts(identifier, records=(f"{SHOWN}{identifier}",))
        forgotten = self._tool_turns.pop((key, identifier), None)
        if forgotten is not None:
            self._held -= _size(forgotten)

    def episode(self, identifier: str, key: str) -> Json | None:
        """Return an episode as JSON, with the record of its request; None: unknown."""
        answer = self._find(identifier, key)
        if answer is None:
            return None
        form = episode_json(answer.episode, answer.episode.workers)
        return {**form, "outcome": answer.episode.outcome, "request": answer.record}

    def _find(self, identifier: str, key: str, *, rounds: bool = True) -> EarlierAnswer | None:
        """Return the record of a request and its episode; None: unknown, or another key's."""
        record = self._store.find_record(f"{SERVED}{identifier}")
        if record is None or record.get("key") != key:
            return None
        stored = self._store.episode(identifier, rounds=rounds)
        return None if stored is None else EarlierAnswer(record, stored)


def _size(turn: ToolTurn) -> int:
    """Return about how many characters a remembered answer holds."""
    size = 0
    for message in turn.messages:
        size += len(message.content)
        if message.parts:
            size += len(str(message.parts))
    return size


def _find_tool_turn(episode: StoredEpisode) -> ToolTurn | None:
    """Return the last calls of the client's tools; None: there are none."""
    for call in reversed(episode.calls):
        if call.completion is not None:
            calls = offered_calls(call.completion.tool_calls, call.sampling.body)
            if calls:
                return ToolTurn(call.worker, call.messages, calls)
    return None


def _recalled(turn: Message, texts: Mapping[str, str]) -> Message:
    """Return a turn with the texts that its parts refer to."""
    content = [texts[str(part[RECALLS])] for part in turn.parts if RECALLS in part]
    if not content:
        return turn
    content.append(turn.content)
    rest = tuple(part for part in turn.parts if RECALLS not in part)
    return replace(turn, content="\n\n".join(filter(None, content)), parts=rest)


def tool_call_id(turn: Message) -> str:
    """Return the id of the tool call that a turn is the result of; "": it is none."""
    for part in turn.parts:
        if "tool_call_id" in part:
            return str(part["tool_call_id"])
    return ""


def _split_at_answer(turns: Sequence[Message]) -> tuple[str, Sequence[Message]]:
    """Return the text of the assistant's last turn, and the turns after it."""
    for index in reversed(range(len(turns))):
        if turns[index].role == "assistant":
            return turns[index].content, turns[index + 1 :]
    return "", turns


def resumed_turns(called: ToolTurn, turns: Sequence[Message]) -> tuple[Message, ...]:
    """Return what the worker that called tools is sent: its context, its calls, and the results.

    The calls have the worker's own ids.
    """
    own = [str(call.get("id", "")) for call in called.calls]
    text, since = _split_at_answer(turns)
    results: list[Message] = []
    for turn in since:
        call = parse_call_id(tool_call_id(turn)) if turn.role == "tool" else None
        if call is not None and call[1] < len(own):
            rest = tuple(part for part in turn.parts if "tool_call_id" not in part)
            results.append(replace(turn, parts=(*rest, {"tool_call_id": own[call[1]]})))
        else:
            results.append(turn)
    calls = Message("assistant", text, ({"tool_calls": list(called.calls)},))
    return (*called.messages, calls, *results)
