"""Keys of calls, and the digests that they are made of."""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from journaled import ASKED

from openconductor.journal import call_key
from openconductor.protocols import CallContext
from openconductor.types import Message, Sampling

BASE: dict[str, Any] = {
    "worker": "w",
    "identity": "i",
    "messages": ASKED,
    "sampling": Sampling(0.2, 9, 7, {"a": {"b": [1]}}),
    "call": CallContext("e", 0, 1, 0, 0),
}
OTHERS: dict[str, dict[str, Any]] = {
    "worker": {"worker": "v"},
    "identity": {"identity": "j"},
    "border of worker and identity": {"worker": "wi", "identity": ""},
    "text": {"messages": (Message("user", "What is 2 + 3?"),)},
    "role": {"messages": (Message("system", "What is 2 + 2?"),)},
    "more turns": {"messages": (*ASKED, Message("user", ""))},
    "parts": {"messages": (Message("user", "What is 2 + 2?", ({"type": "x"},)),)},
    "temperature": {"sampling": Sampling(0.3, 9, 7, {"a": {"b": [1]}})},
    "no temperature": {"sampling": Sampling(None, 9, 7, {"a": {"b": [1]}})},
    "max_tokens": {"sampling": Sampling(0.2, 8, 7, {"a": {"b": [1]}})},
    "seed": {"sampling": Sampling(0.2, 9, None, {"a": {"b": [1]}})},
    "body": {"sampling": Sampling(0.2, 9, 7, {"a": {"b": [2]}})},
    "decimal and text": {"sampling": Sampling(0.2, 9, 7, {"a": {"b": ["1"]}})},
    "sample": {"call": CallContext("e", 0, 1, 0, 1)},
    "round": {"call": CallContext("e", 1, 1, 0, 0)},
    "step": {"call": CallContext("e", 0, 2, 0, 0)},
    "the Conductor's": {"call": CallContext("e", 0, None, 0, 0)},
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS.keys())
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
    assert (
        call_key("wörker", "", (Message("user", "\ud800é\n"),), Sampling(), CallContext())
        == "f3b80079ed250b0dd99b59c2096eeef8"
    )
