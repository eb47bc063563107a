"""Keys of calls, and the digests that they are made of."""

from __future__ import annotations

from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from journaled import ASKED

from openconductor.protocols import CallContext
from openconductor.store import call_key
from openconductor.types import Message, Sampling

BODY = {"a": {"b": [1]}}
BASE: dict[str, Any] = {
    "worker": "w",
    "identity": "i",
    "messages": ASKED,
    "sampling": Sampling(0.2, 9, 7, BODY),
    "call": CallContext("e", 0, 1, 0, 0),
}
ASKS = "What is 2 + 2?"
MESSAGES = [
    (Message("user", "What is 2 + 3?"),),
    (Message("user", ""),),
    (Message("system", ASKS),),
    (*ASKED, Message("user", "")),
    (Message("user", ASKS, ({"type": "x"},)),),
]
SAMPLINGS = [
    Sampling(0.3, 9, 7, BODY),
    Sampling(None, 9, 7, BODY),
    Sampling(0.2, 8, 7, BODY),
    Sampling(0.2, 9, None, BODY),
    Sampling(0.2, 9, 7, {"a": {"b": [2]}}),
    Sampling(0.2, 9, 7, {"a": {"b": ["1"]}}),
]
PLACES = [(0, 1, 0, 1), (1, 1, 0, 0), (0, 2, 0, 0), (0, None, 0, 0)]
OTHERS: list[dict[str, Any]] = [{"worker": "v"}, {"identity": "j"}]
OTHERS += [{"worker": "wi", "identity": ""}]  # where one ends and the other begins
OTHERS += [{"messages": messages} for messages in MESSAGES]
OTHERS += [{"sampling": sampling} for sampling in SAMPLINGS]
OTHERS += [{"call": CallContext("e", *place)} for place in PLACES]


@pytest.mark.parametrize("change", OTHERS, ids=str)
def test_a_key_tells_calls_apart(change: dict[str, Any]) -> None:
    assert call_key(**{**BASE, **change}) != call_key(**BASE)


def test_a_key_is_the_same_for_the_same_call_of_another_episode_or_attempt() -> None:
    body = MappingProxyType({"z": (1, 2), "a": {"y": Decimal("0.5"), "x": frozenset({2, 1})}})
    same = {"a": MappingProxyType({"x": frozenset({1, 2}), "y": Decimal("0.5")}), "z": [1, 2]}
    one = call_key("w", "i", ASKED, Sampling(body=body), CallContext("e", 0, 1))
    two = call_key("w", "i", list(ASKED), Sampling(body=same), CallContext("f", 0, 1, 3, depth=1))
    assert one == two
    assert len(one) == 32


def test_keys_are_those_of_earlier_journals() -> None:
    # A changed key means that everything that was ever paid for is paid for again.
    assert call_key(**BASE) == "ed420a26456248717680fbf92494c550"
    odd = call_key("wörker", "", (Message("user", "\ud800é\n"),), Sampling(), CallContext())
    assert odd == "f3b80079ed250b0dd99b59c2096eeef8"
