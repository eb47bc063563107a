"""The fault server itself: what it plays is what it says, and what it counts is what happened."""

from __future__ import annotations

import json
import random
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from faults.plays import FAULTS, usage_of
from faults.script import Seeded, read_request
from faults.server import fault_process

SCRIPT = Seeded(7, {"flaky": 0.3}, dict.fromkeys(FAULTS, 1.0))


def body(number: int, model: str = "flaky", *, stream: bool = False) -> bytes:
    return json.dumps(
        {"model": model, "messages": [{"role": "user", "content": f"{number}"}], "stream": stream}
    ).encode()


def test_a_fate_depends_on_nothing_but_seed_worker_content_and_repeat() -> None:
    requests = [read_request(body(number)) for number in range(300)]
    fates = {request.digest: SCRIPT.fate(request) for request in requests}
    random.Random(0).shuffle(requests)
    assert {request.digest: SCRIPT.fate(request) for request in requests} == fates
    assert {SCRIPT.fate(read_request(body(number, "steady"))) for number in range(300)} == {"ok"}
    other = Seeded(8, SCRIPT.shares, SCRIPT.weights)
    assert [other.fate(request) for request in requests] != [SCRIPT.fate(request) for request in requests]


def test_in_a_process_of_its_own_it_counts_the_same_and_stops_with_its_block() -> None:
    with fault_process(Seeded(1, {}, {"500": 1.0})) as url:
        request = urllib.request.Request(f"{url}/chat/completions", data=body(1))
        with urllib.request.urlopen(request, timeout=10) as response:
            assert json.load(response)["choices"]
        with urllib.request.urlopen(f"{url.removesuffix('/v1')}/stats", timeout=10) as response:
            summary = json.load(response)
    assert summary["requests"] == 1
    assert summary["fates"] == {"ok": 1}
    told = usage_of(read_request(body(1)))
    assert summary["usage"] == {"flaky": told}
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(request, timeout=5)
