"""What `openconductor train` is told, before anything is learnt."""

from __future__ import annotations

from pathlib import Path

import pytest

from openconductor import cli
from openconductor.cli.train import _percent


@pytest.mark.parametrize("option", ["--seeds=1,2", "--seeds=", "--jobs=1", "--controls", "--no-controls"])
def test_an_option_of_a_study_is_refused_where_there_is_none(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("recipe.toml").write_text('name = "tiny"\n', encoding="utf-8")
    assert cli.main(["train", "recipe.toml", option]) == 2
    said = capsys.readouterr().err
    assert option.split("=", maxsplit=1)[0] in said and "without --study" in said
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.toml"]


def test_what_could_not_be_measured_is_shown_as_a_dash() -> None:
    assert (_percent(None), _percent(0.0), _percent(0.5)) == ("–", "0.0%", "50.0%")
