"""Whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from openconductor.errors import ConfigError, JournalError
from openconductor.storage import write_whole
from openconductor.training.checkpoint import (
    is_complete,
    last_checkpoint,
    load_base_model,
    load_model,
    storing,
    whole_folder,
)


def test_a_folder_whose_filling_fails_does_not_appear_and_the_old_one_stays(tmp_path: Path) -> None:
    target = tmp_path / "conductor"
    with whole_folder(target) as part:
        (part / "weights").write_text("old", encoding="utf-8")

    def fail() -> None:
        with whole_folder(target) as part:
            (part / "weights").write_text("half", encoding="utf-8")
            raise OSError(28, "No space left on device")

    with pytest.raises(JournalError, match="No space left"):
        fail()
    assert (target / "weights").read_text(encoding="utf-8") == "old"
    assert is_complete(target)
    assert [path.name for path in tmp_path.iterdir()] == ["conductor"]


def test_a_text_is_written_whole(tmp_path: Path) -> None:
    write_whole(tmp_path / "a.json", "{}")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    with pytest.raises(JournalError, match="could not be written"):
        write_whole(tmp_path / "absent" / "a.json", "{}")


def test_torchs_own_words_for_a_full_disk_are_recognised(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="optimizer"), storing(tmp_path / "optimizer.pt"):
        raise RuntimeError("[enforce fail at inline_container.cc:603] . PytorchStreamWriter failed writing file data/0")
    with pytest.raises(RuntimeError, match="a bug"), storing(tmp_path / "optimizer.pt"):
        raise RuntimeError("a bug")


def test_an_unfinished_checkpoint_is_removed_and_the_last_whole_one_found(tmp_path: Path) -> None:
    for done, whole in ((2, True), (10, True), (12, False)):
        folder = tmp_path / f"checkpoint-{done}"
        folder.mkdir()
        if whole:
            (folder / "complete").write_text("", encoding="utf-8")
    assert last_checkpoint(tmp_path) == (tmp_path / "checkpoint-10", 10)
    assert not (tmp_path / "checkpoint-12").exists()
    assert last_checkpoint(tmp_path / "nothing") == (None, 0)


def test_a_checkpoint_of_another_architecture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"found no config\.json"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    with pytest.raises(ConfigError, match="got architecture 'llama', expected 'qwen2'"):
        load_model(tmp_path)


def test_a_base_model_that_is_not_there_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.base .*could not be loaded"):
        load_base_model(str(tmp_path))
