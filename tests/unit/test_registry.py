"""Shelves: plain dictionaries of names, imported when asked for."""

from __future__ import annotations

import sys

import pytest

from openconductor.errors import ConfigError
from openconductor.registry import load_registered

SHELF = {"decimal": "decimal:Decimal", "wave": "wave:Error", "gone": "no_such_module:Thing"}


def test_a_name_is_loaded_from_where_the_shelf_says() -> None:
    from decimal import Decimal

    assert load_registered(SHELF, "decimal", what="thing") is Decimal


def test_nothing_else_on_the_shelf_is_imported() -> None:
    sys.modules.pop("wave", None)
    load_registered(SHELF, "decimal", what="thing")
    assert "wave" not in sys.modules


def test_an_unknown_name_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(
        ConfigError, match=r"thing: got 'decimel', expected one of decimal, gone, wave; nearest: 'decimal'"
    ):
        load_registered(SHELF, "decimel", what="thing")


def test_a_module_that_is_missing_says_so_itself() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        load_registered(SHELF, "gone", what="thing")
