"""The folder of a run: whole or not at all, and never two evaluations in one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openconductor.errors import ConfigError, JournalError
from openconductor.evaluation.config import EvalConfig, make_eval_config
from openconductor.evaluation.folder import (
    check_folder,
    holds,
    input_differences,
    read_folder,
    write_folder,
)
from openconductor.storage import make_folder, write_whole

INPUTS = {"workers": [{"name": "a", "price": {"input": "1"}}], "tasks": {"gym": {"problems": 3, "digest": "d1"}}}


def config(**values: object) -> EvalConfig:
    return make_eval_config({"systems": ["worker:a"], **values}, where="test")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_folder(tmp_path / "run")
    write_folder(tmp_path / "run", config(), INPUTS, sandbox="bubblewrap")
    return tmp_path / "run"


def test_a_folder_says_what_the_run_was_told_and_what_it_found(folder: Path) -> None:
    told, found = read_folder(folder)
    assert told == config()
    assert found["inputs"] == INPUTS
    assert found["sandbox"] == "bubblewrap"
    assert isinstance(found["packages"], dict) and found["packages"]["openconductor"]
    assert sorted(path.name for path in folder.iterdir()) == ["config.toml", "environment.json"]


def test_a_new_folder_and_an_empty_one_hold_no_run_yet(tmp_path: Path) -> None:
    assert not check_folder(tmp_path / "new", config(), INPUTS)
    assert not check_folder(tmp_path, config(), INPUTS)


def test_what_a_kill_before_the_recipe_left_behind_is_no_run_and_no_hindrance(tmp_path: Path) -> None:
    for name in ("environment.json", "config.toml.part", "journal.sqlite", "journal.sqlite-wal", "journal.sqlite-lock"):
        (tmp_path / name).touch()
    assert not check_folder(tmp_path, config(), INPUTS)


def test_a_folder_holds_what_it_was_told_and_no_other_evaluation(folder: Path, tmp_path: Path) -> None:
    assert holds(folder, config())
    assert holds(folder, config(budget={"calls": 3}, concurrency=1))
    assert not holds(folder, config(seed=1))
    assert not holds(folder, config(pool="pool.toml"))
    assert not holds(tmp_path, config()) and not holds(tmp_path / "new", config())
    (folder / "config.toml").write_text("sistems = 3", "utf-8")
    assert not holds(folder, config())


def test_a_folder_of_something_else_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ConfigError, match=r"holds 'thesis.tex', expected a new folder"):
        check_folder(tmp_path, config(), INPUTS)
    with pytest.raises(ConfigError, match="is no folder"):
        check_folder(tmp_path / "thesis.tex", config(), INPUTS)


def test_the_same_evaluation_is_gone_on_with_and_what_it_may_spend_may_change(folder: Path) -> None:
    richer = config(budget={"dollars": "5"}, concurrency=2)
    assert check_folder(folder, richer, INPUTS)
    environment = (folder / "environment.json").read_bytes()
    write_folder(folder, richer, {}, sandbox="bubblewrap")
    assert read_folder(folder)[0] == richer
    assert (folder / "environment.json").read_bytes() == environment  # what the run began with


def test_a_run_that_is_gone_on_with_elsewhere_says_what_is_different_there(folder: Path) -> None:
    for sandbox in ("plain", "bubblewrap", "plain"):
        write_folder(folder, config(), INPUTS, sandbox=sandbox)
    environment = read_folder(folder)[1]
    assert environment["sandbox"] == "bubblewrap"
    assert environment["resumed"] == [['sandbox: got "plain", expected "bubblewrap"']]
    assert check_folder(folder, config(), INPUTS)


@pytest.mark.parametrize(
    ("values", "inputs", "said"),
    [
        ({"seed": 2}, INPUTS, "seed: got 2, expected null"),
        ({"systems": ["worker:b"]}, INPUTS, r'systems: got \["worker:b"\], expected \["worker:a"\]'),
        (
            {},
            {**INPUTS, "tasks": {"gym": {"problems": 3, "digest": "d2"}}},
            'tasks: gym: digest: got "d2", expected "d1"',
        ),
        (
            {},
            {**INPUTS, "workers": [{"name": "a", "price": {"input": "2"}}]},
            'workers 0: price: input: got "2", expected "1"',
        ),
        ({}, {**INPUTS, "workers": [*INPUTS["workers"], {"name": "b"}]}, "workers 1: got .*, expected null"),
    ],
)
def test_another_evaluation_is_refused_and_the_message_names_what_differs(
    folder: Path, values: dict[str, object], inputs: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        check_folder(folder, config(**values), inputs)
    assert str(folder) in str(caught.value)


def test_differences_are_none_where_there_are_none() -> None:
    assert input_differences(INPUTS, json.loads(json.dumps(INPUTS))) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.toml", "systems = ["),
        ("config.toml", "sytems = ['a']"),
        ("environment.json", "{"),
        ("environment.json", "[]"),
    ],
)
def test_a_broken_folder_says_so(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=str(folder)):
        read_folder(folder)


def test_a_folder_without_a_run_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected the folder of an evaluation"):
        read_folder(tmp_path)


def test_a_file_that_cannot_be_written_leaves_the_old_one_and_no_part(tmp_path: Path) -> None:
    write_whole(tmp_path / "table.md", "old\n")
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "table.md", "\ud800")
    assert [path.name for path in tmp_path.iterdir()] == ["table.md"]
    assert (tmp_path / "table.md").read_bytes() == b"old\n"
    with pytest.raises(JournalError, match="could not be written"):
        write_whole(tmp_path / "table.md" / "below", "x")
    with pytest.raises(JournalError, match="could not be made"):
        make_folder(tmp_path / "table.md" / "below")
