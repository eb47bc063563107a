"""A user's body is laid over what is sent anyway."""

from __future__ import annotations

from decimal import Decimal

import pytest

from openconductor.providers.json_body import laid_over


@pytest.mark.parametrize(
    ("below", "above", "laid"),
    [
        ({"a": 1}, {}, {"a": 1}),
        ({"a": {"b": 1}}, {"a": 2}, {"a": 2}),
        ({"a": 1}, {"a": {"b": 2}}, {"a": {"b": 2}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": 1}, {"a": None}, {"a": None}),
        ({}, {"a": [{"b": Decimal("0.5")}]}, {"a": [{"b": 0.5}]}),
    ],
    ids=str,
)
def test_mappings_are_laid_over_each_other_and_all_else_is_replaced(below: object, above: object, laid: object) -> None:
    assert laid_over(below, above) == laid
