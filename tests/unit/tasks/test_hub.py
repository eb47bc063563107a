"""Fetching from the hub: pinned files, digests, what is not pinned, and no network. The hub's client is played."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from openconductor.errors import TaskError
from openconductor.tasks import hub
from openconductor.tasks.hub import HubDataset, HubFile, UnpinnedData, fetch

COMMIT, NEWEST = "a" * 40, "b" * 40
DATA = b'{"id": "1"}\n'
SHA256 = hashlib.sha256(DATA).hexdigest()


class NetworkFault(Exception):
    """What the client's HTTP library raises."""


class EntryNotFound(Exception):
    pass


class Gated(OSError):
    pass


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[str, str | None]]]:
    """Plays the client: its cache, the requests made of it, and by option a failure."""

    def play(failure: Exception | None = None) -> list[tuple[str, str | None]]:
        asked: list[tuple[str, str | None]] = []

        def download(dataset: str, file: str, *, repo_type: str, revision: str | None) -> str:
            assert repo_type == "dataset"
            asked.append((file, revision))
            if failure is not None:
                raise failure
            commit = revision if revision is not None and hub.COMMIT.fullmatch(revision) else NEWEST
            path = tmp_path / "datasets--org--set" / "snapshots" / commit / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(DATA)
            return str(path)

        errors = SimpleNamespace(HTTPError=NetworkFault, EntryNotFoundError=EntryNotFound)
        modules = {"datasets": None, "huggingface_hub": SimpleNamespace(hf_hub_download=download)}
        monkeypatch.setattr(hub, "needs", {**modules, "huggingface_hub.errors": errors}.__getitem__)
        return asked

    return play


def got(revision: str | None = None, *, pinned: str | None = COMMIT, sha256: str | None = SHA256, gated: bool = False):
    files = (HubFile("data/one.jsonl", sha256, 1), HubFile("data/two.jsonl", None, 1))
    published = HubDataset("org/set", pinned, "MIT", {"test": files}, gated)
    return fetch(published, "test", task="demo", revision=revision)


def test_a_pinned_data_set_is_fetched_by_its_commit_without_a_word(played) -> None:
    asked = played()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fetched, commit, pinned = got()
    assert asked == [("data/one.jsonl", COMMIT), ("data/two.jsonl", COMMIT)]
    assert pinned
    assert commit == COMMIT
    assert [(one.sha256, one.rows) for one in fetched] == [(SHA256, 1)] * 2
    assert all(one.path.read_bytes() == DATA for one in fetched)


def test_bytes_that_are_not_what_they_were_are_refused(played) -> None:
    played()
    with pytest.raises(TaskError, match=f"org/set/data/one.jsonl at {COMMIT}: got the SHA-256 {SHA256}, expected 0000"):
        got(sha256="0" * 64)


def test_no_digest_is_expected_of_another_commit(played) -> None:
    played()
    other = "c" * 40
    fetched, commit, pinned = got(other, sha256="0" * 64)
    assert pinned
    assert commit == other
    assert {one.rows for one in fetched} == {None}


@pytest.mark.parametrize("revision", [None, "main", "v1.0"])
def test_what_is_not_pinned_is_said_aloud_and_all_its_files_are_of_one_commit(played, revision: str | None) -> None:
    asked = played()
    with pytest.warns(
        UnpinnedData, match=f"org/set is not pinned; loaded commit {NEWEST}; to load it again: revision="
    ):
        fetched, commit, pinned = got(revision, pinned=None)
    assert not pinned
    assert asked == [("data/one.jsonl", revision), ("data/two.jsonl", NEWEST)]
    assert commit == NEWEST
    assert len(fetched) == 2


@pytest.mark.parametrize(
    "failure", [OSError("offline"), NetworkFault("connection refused"), EntryNotFound("no such file"), ValueError("?")]
)
def test_without_a_network_the_local_file_is_named_as_the_way_on(played, failure: Exception) -> None:
    played(failure)
    with pytest.raises(TaskError, match=r"could not be fetched: .*; expected a network, or a local file of JSON Lines"):
        got()


def test_a_gated_data_set_says_what_its_publishers_ask(played) -> None:
    played(Gated("401"))
    with pytest.raises(TaskError, match="its terms must be accepted there, and HF_TOKEN set"):
        got(gated=True)


def test_offline_the_installed_client_leads_to_the_same_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(TaskError, match="could not be fetched"):
        got()
