"""An Episode as JSON: nothing is lost, the ledger adds up, errors keep their type."""

from __future__ import annotations

import json
from decimal import Decimal
from types import MappingProxyType

import pytest

from openconductor.errors import WorkerTimeout, WorkflowError, WorkflowReason
from openconductor.store.serialisation import dumps, load, plain
from openconductor.types import Completion, Message, Price, Sampling, Step, Usage, Workflow

QUESTION = "Take 4 17 9, sort the list, then double every number."
PLAN = Workflow((Step(3, "sort the list"), Step(1, "double every number", "all")))


@pytest.mark.parametrize(
    "value",
    [
        Usage(1, 2, 3, 4, Decimal("0.00012300"), 5, 0.25),
        Completion(
            'Fi"ne \ud800',
            "why",
            ({"id": "c"},),
            Usage(1),
            "tool_calls",
            {"model": "m", "n": [1, None]},
        ),
        Message("user", "Sëe", ({"type": "image_url", "image_url": {"url": "data:,x"}},)),
        Sampling(0.2, 9, 7, {"effort": "minimal", "stop": ["\n"]}),
        Price(Decimal("1.25"), Decimal(10)),
        PLAN,
        Workflow((Step(0, "first"), Step(1, "second", [0]))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_comes_back_from_its_json_as_it_was(value: object) -> None:
    assert load(type(value), json.loads(dumps(value))) == value


def test_what_json_does_not_know_is_written_and_what_is_no_such_value_is_refused() -> None:
    odd = MappingProxyType(
        {"set": frozenset({2, 1}), 3: (Decimal("1E-10"), MappingProxyType({"a": 1}))}
    )
    assert dumps(odd) == '{"3":["0.0000000001",{"a":1}],"set":[1,2]}'
    assert plain(WorkerTimeout("slow", worker="w")) == {
        "type": "WorkerTimeout",
        "message": "worker 'w': slow",
        "worker": "w",
        "status": None,
    }
    assert plain(WorkflowError(WorkflowReason.NO_STEPS, "empty")) == {
        "type": "WorkflowError",
        "message": "no_steps: empty",
        "reason": "no_steps",
    }
    with pytest.raises(ValueError, match="finish_reason"):
        load(Completion, {"text": "A", "finish_reason": "tired"})
