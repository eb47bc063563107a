"""The gym's operations and how they are named."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from openconductor.gym.world import (
    OPERATIONS,
    WORDINGS,
    Operation,
    find_operations,
    read_value,
    write_value,
)

every_operation = pytest.mark.parametrize(
    "operation", OPERATIONS.values(), ids=lambda operation: operation.name
)
number_lists = st.lists(st.integers(0, 999_999).map(str), min_size=1, max_size=5).map(tuple)


RESULTS = """
reverse = 10 3 12
sort = 3 10 12
double = 24 6 20
increment = 13 4 11
minutes = 720 180 600
centimetres = 1200 300 1000
spell = one-two three one-zero
binary = 1100b 11b 1010b
"""


def test_an_operation_does_what_its_name_says() -> None:
    results = dict(line.split(" = ") for line in RESULTS.strip().splitlines())
    made = {name: write_value(op.apply(("12", "3", "10"))) for name, op in OPERATIONS.items()}
    assert made == results


@every_operation
@pytest.mark.parametrize("wording", WORDINGS)
def test_a_phrase_names_its_operation_and_nothing_else(operation: Operation, wording: str) -> None:
    assert find_operations(f"Please {operation.phrase(wording)}, thank you.") == (
        (operation, wording),
    )


@every_operation
@given(first=number_lists, second=number_lists)
def test_an_operation_never_makes_two_different_bags_of_items_the_same(
    operation: Operation, first: tuple[str, ...], second: tuple[str, ...]
) -> None:
    same_before = sorted(map(int, first)) == sorted(map(int, second))
    assert (sorted(operation.apply(first)) == sorted(operation.apply(second))) == same_before


@every_operation
@given(value=number_lists)
def test_what_an_operation_makes_can_be_read_back_from_its_text(
    operation: Operation, value: tuple[str, ...]
) -> None:
    made = operation.apply(value)
    assert read_value(write_value(made)) == made


@pytest.mark.parametrize("text", ["", "Sorry, I could not do that.", "4, 17", "-3"])
def test_what_is_no_value_is_not_read(text: str) -> None:
    assert read_value(text) is None
