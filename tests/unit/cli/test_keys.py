"""``openconductor keys``: what it prints, where, and what it keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openconductor import cli
from openconductor.serving.key_ring import hash_key


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_key_is_printed_once_and_kept_as_a_hash_beside_the_default_server(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["keys", "add", "ann", "dollars=2.50", 'models=["conductor", "auto"]']) == 0
    key = capsys.readouterr().out.strip()
    assert key.startswith("oc-")
    names = sorted(path.name for path in Path().iterdir())
    assert names == ["serve.sqlite", "serve.sqlite-lock"]  # and its log is in the file
    assert key.encode() not in b"".join(path.read_bytes() for path in Path().iterdir())
    assert cli.main(["keys", "list"]) == 0
    listed = capsys.readouterr().out
    assert "models=conductor,auto dollars=2.5" in listed
    assert key not in listed and hash_key(key) not in listed
    assert cli.main(["keys", "revoke", "ann", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["revoked"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "ann", "dolars=2"], "the nearest known key is 'dollars'"),
        (["add", "ann", "dollars"], "expected key=value"),
        (["revoke", "ann", "--journal", "none.sqlite"], "no such file"),
        (["list", "--journal", "none.sqlite"], "no such file"),
    ],
)
def test_mistakes_say_what_is_meant_and_make_no_key(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["keys", *arguments]) != 0
    captured = capsys.readouterr()
    assert message in captured.err and not captured.out
    assert not Path("none.sqlite").exists()
