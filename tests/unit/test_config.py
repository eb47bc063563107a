"""Strict TOML: what is refused, and what the message says."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pytest

from openconductor.config import dump_toml, load_registered, load_toml
from openconductor.errors import ConfigError

CASES: Any = json.loads(Path(__file__).with_name("config_cases.json").read_text("ascii"))


@dataclass(frozen=True, slots=True)
class Optim:
    lr: float = 1e-6
    schedule: Literal["cosine", "constant"] = "cosine"


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    price: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    steps: int = 200
    name: str = "paper"
    sharp: bool = False
    tags: tuple[str, ...] = ()
    optim: Optim = field(default_factory=Optim)
    row: tuple[Row, ...] = ()
    body: dict[str, object] = field(default_factory=dict)


def load(folder: Path, text: str, *overrides: str) -> Recipe:
    file = folder / "recipe.toml"
    file.write_text(text, encoding="utf-8")
    return load_toml(file, Recipe, overrides)


def message(folder: Path, text: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, text, *overrides)
    return str(caught.value)


def test_values_take_their_types_and_nested_tables_their_classes(tmp_path: Path) -> None:
    recipe = load(
        tmp_path,
        'steps = 3\ntags = ["a", "b"]\n[optim]\nlr = 1\n[[row]]\nname = "x"\nprice = 1.10\n',
    )
    assert recipe == Recipe(
        steps=3, tags=("a", "b"), optim=Optim(lr=1.0), row=(Row("x", Decimal("1.1")),)
    )


@pytest.mark.parametrize(
    ("text", "where", "named"),
    CASES["recipes"],
)
def test_an_unknown_key_is_named_with_the_nearest_one_and_a_wrong_value_with_the_expected(
    tmp_path: Path, text: str, where: str, named: str
) -> None:
    said = message(tmp_path, text)
    assert where in said
    assert named in said
    assert "recipe.toml" in said


def test_a_file_that_is_no_file_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes("name = 'Größe'".encode("latin-1"))
    with pytest.raises(ConfigError, match="UTF-8"):
        load_toml(tmp_path / "latin.toml", Recipe)
    assert "line 2" in message(tmp_path, "steps = 3\nname = = 4\n")
    for path in (tmp_path / "absent.toml", tmp_path, tmp_path / "a\0b"):
        with pytest.raises(ConfigError, match=r"expected a TOML file|cannot be read"):
            load_toml(path, Recipe)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("steps=7", Recipe(steps=7)),
        ("steps = 7", Recipe(steps=7)),
        ("name=fast", Recipe(name="fast")),
        ('name="7"', Recipe(name="7")),
        ("name=a=b", Recipe(name="a=b")),
        ("sharp=true", Recipe(sharp=True)),
        ('tags=["x"]', Recipe(tags=("x",))),
        ("optim.lr=1e-3", Recipe(optim=Optim(lr=1e-3))),
        ("body.a.b=1", Recipe(body={"a": {"b": 1}})),
    ],
)
def test_an_override_sets_one_value(tmp_path: Path, override: str, expected: Recipe) -> None:
    assert load(tmp_path, "", override) == expected


def test_the_last_override_wins_over_the_file_and_reaches_into_arrays(tmp_path: Path) -> None:
    recipe = load(
        tmp_path, "steps = 1\n[[row]]\nname = 'x'\n", "steps=2", "steps=3", "row.0.name=y"
    )
    assert recipe == Recipe(steps=3, row=(Row("y"),))


@pytest.mark.parametrize(
    "override",
    CASES["overrides"],
)
def test_a_wrong_override_is_a_config_error(tmp_path: Path, override: str) -> None:
    message(tmp_path, "steps = 1\nrow = []\n", override)


@pytest.mark.parametrize(
    ("text", "overrides"),
    CASES["secrets"],
)
def test_what_looks_like_a_key_is_refused_and_never_shown(tmp_path, text, overrides) -> None:
    said = message(tmp_path, text, *overrides)
    assert "environment" in said
    assert "topsecretvalue" not in said


def test_what_is_written_as_toml_reads_as_the_same(tmp_path: Path) -> None:
    values = {
        "name": 'Grö"ße\n\x7f',
        "tags": ["a", "b"],
        "optim": {"lr": 1e-6},
        "body": {"a b": {"c": [{"d": True}]}},
    }
    assert load(tmp_path, dump_toml(values)) == Recipe(
        name='Grö"ße\n\x7f', tags=("a", "b"), optim=Optim(1e-6), body={"a b": {"c": [{"d": True}]}}
    )


def test_a_shelf_loads_what_it_names_and_only_that() -> None:
    shelf = {"decimal": "decimal:Decimal", "gone": "no_such_module:Thing"}
    assert load_registered(shelf, "decimal", what="thing") is Decimal
    with pytest.raises(
        ConfigError,
        match="got 'decimel', expected one of decimal, gone, module:attribute; nearest: 'decimal'",
    ):
        load_registered(shelf, "decimel", what="thing")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        load_registered(shelf, "gone", what="thing")
