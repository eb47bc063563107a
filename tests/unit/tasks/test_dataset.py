"""Tasks made of rows: ids, limits, digests, what a run writes down; and fetching, with the hub's client played."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from openconductor.errors import TaskError
from openconductor.tasks import dataset as dataset_module, load_task
from openconductor.tasks.dataset import COMMIT, DatasetTask, UnpinnedData
from openconductor.tasks.items import DataFile
from openconductor.tasks.math import AIME25


def local(folder: Path, rows: Sequence[object], name: str = "data.jsonl") -> Path:
    path = folder / name
    path.write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    return path


def sums(count: int) -> list[dict[str, object]]:
    return [
        {"id": f"p{number}", "problem": f"What is {number} + 1?", "answer": number + 1}
        for number in range(count)
    ]


def ids(path: Path, **options: object) -> list[str]:
    return [problem.id for problem in load_task("math500", path=path, **options).load()]


def test_a_file_stands_for_every_split_and_a_folder_holds_one_file_each(tmp_path: Path) -> None:
    path = local(tmp_path, sums(3), "train.jsonl")
    local(tmp_path, sums(2), "dev.jsonl")
    assert [
        (one.id, one.reference, one.task) for one in load_task("math", path=path).load("test")
    ] == [(f"p{number}", str(number + 1), "math") for number in range(3)]
    folder = load_task("math", path=tmp_path)
    assert (len(folder.load()), len(folder.load("dev"))) == (3, 2)
    with pytest.raises(TaskError, match=r"test\.jsonl: no such file"):
        folder.load("test")
    path.unlink()
    assert len(folder.load()) == 3  # a split is read once


def test_a_limit_draws_by_seed_and_keeps_the_order(tmp_path: Path) -> None:
    path = local(tmp_path, sums(50))
    drawn = ids(path, limit=10, seed=1)
    assert drawn == sorted(drawn, key=lambda name: int(name[1:])) == ids(path, limit=10, seed=1)
    assert len(drawn) == 10
    assert drawn != ids(path, limit=10, seed=2)
    # What is drawn does not depend on where it stands.
    assert set(ids(local(tmp_path, sums(50)[::-1], "reversed.jsonl"), limit=10, seed=1)) == set(
        drawn
    )
    assert len(ids(path, limit=99)) == 50


@pytest.mark.parametrize("limit", [None, 1])
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [*sums(1), *sums(1)],
            r"data\.jsonl, line 2: the id 'p0' is also that of .*data\.jsonl, line 1",
        ),
        (
            [{"id": "a", "problem": "p"}],
            r"data\.jsonl, line 1: field 'answer': missing; got the fields id, problem",
        ),
        ([{"problem": "p", "answer": "1"}], r"line 1: field 'id': missing"),
        ([], r"data\.jsonl: got no row, expected problems"),
    ],
)
def test_a_row_that_is_wrong_is_an_error_that_names_it(
    tmp_path: Path, rows, limit: int | None, message: str
) -> None:
    with pytest.raises(TaskError, match=message):
        ids(local(tmp_path, rows), limit=limit)


def test_a_run_can_write_down_where_its_problems_came_from(tmp_path: Path) -> None:
    path = local(tmp_path, sums(4))
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    record = load_task("math500", path=path, limit=3).source.record()
    made_of = {
        "sha256": found,
        "files": [{"name": str(path), "sha256": found, "rows": 4}],
        "rows": 4,
        "problems": 3,
    }
    known = {
        "dataset": "local file",
        "split": "test",
        "revision": None,
        "pinned": False,
        "licence": "unknown",
    }
    none: dict[str, object] = {"left_out": [], "notes": [], "parts": []}
    assert (
        json.loads(json.dumps(record))
        == known | made_of | {"fields": ["answer", "id", "problem"]} | none
    )
    assert load_task("math500", path=path, sha256=found.upper()).source.pinned
    with pytest.raises(TaskError, match=f"data.jsonl: got the SHA-256 {found}, expected 00"):
        load_task("math500", path=path, sha256="00").load()


PINNED, NEWEST = "a" * 40, "b" * 40
DATA = b'{"id": "1", "problem": "p", "answer": "1"}\n'
SHA256 = hashlib.sha256(DATA).hexdigest()
Play = Callable[..., list[tuple[str, str | None]]]


class NetworkFault(Exception):
    """What the client's HTTP library raises."""


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Plays the client: its cache, the requests made of it, and by option a failure."""

    def play(failure: Exception | None = None) -> list[tuple[str, str | None]]:
        asked: list[tuple[str, str | None]] = []

        def download(dataset: str, file: str, *, repo_type: str, revision: str | None) -> str:
            assert (dataset, repo_type) == (AIME25.id, "dataset")
            asked.append((file, revision))
            if failure is not None:
                raise failure
            commit = revision if revision is not None and COMMIT.fullmatch(revision) else NEWEST
            path = tmp_path / "snapshots" / commit / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(
                DATA.replace(b'"1"', f'"{file}"'.encode(), 1) if "two" in file else DATA
            )
            return str(path)

        errors = SimpleNamespace(HTTPError=NetworkFault, EntryNotFoundError=KeyError)
        modules = {"datasets": None, "huggingface_hub": SimpleNamespace(hf_hub_download=download)}
        monkeypatch.setattr(
            dataset_module, "needs", {**modules, "huggingface_hub.errors": errors}.__getitem__
        )
        return asked

    return play


def published(
    pinned: str | None = PINNED,
    *,
    sha256: str = SHA256,
    rows: int = 1,
    gated: bool = False,
    **options,
):
    files = (DataFile("data/one.jsonl", sha256, rows), DataFile("data/two.jsonl"))
    return DatasetTask(
        replace(AIME25, revision=pinned, splits={"test": files}, gated=gated), **options
    )


def test_a_pinned_data_set_is_fetched_by_its_commit_without_a_word(played: Play) -> None:
    asked = played()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = published().source
    assert asked == [("data/one.jsonl", PINNED), ("data/two.jsonl", PINNED)]
    assert (source.dataset, source.revision, source.pinned, source.rows) == (
        "math-ai/aime25",
        PINNED,
        True,
        2,
    )
    assert source.files[0] == DataFile("math-ai/aime25/data/one.jsonl", SHA256, 1)
    both = f"{SHA256}\n{source.files[1].sha256}\n"
    assert source.sha256 == hashlib.sha256(both.encode()).hexdigest()
    assert source.licence.startswith("not stated")


def test_bytes_and_rows_that_are_not_what_they_were_are_refused(played: Play) -> None:
    played()
    where = "math-ai/aime25/data/one.jsonl"
    with pytest.raises(
        TaskError, match=f"{where} at {PINNED}: got the SHA-256 {SHA256}, expected 0000"
    ):
        published(sha256="0" * 64).load()
    with pytest.raises(TaskError, match=f"{where}: got 1 rows, expected 30"):
        published(rows=30).load()
    source = published(
        sha256="0" * 64, rows=30, revision="c" * 40
    ).source  # nothing is known of another commit
    assert (source.revision, source.pinned) == ("c" * 40, True)


@pytest.mark.parametrize("revision", [None, "main"])
def test_what_is_not_pinned_is_said_aloud_and_all_its_files_are_of_one_commit(
    played: Play, revision
) -> None:
    asked = played()
    again = f"math-ai/aime25 is not pinned; loaded commit {NEWEST}; to load it again: revision="
    with pytest.warns(UnpinnedData, match=again):
        source = published(None, revision=revision).source
    assert (source.pinned, source.revision) == (False, NEWEST)
    assert asked == [("data/one.jsonl", revision), ("data/two.jsonl", NEWEST)]


@pytest.mark.parametrize(
    "failure", [OSError("offline"), NetworkFault("refused"), KeyError("no file"), ValueError()]
)
def test_without_a_network_the_local_file_is_named_as_the_way_on(
    played: Play, failure: Exception
) -> None:
    played(failure)
    with pytest.raises(
        TaskError,
        match=r"could not be fetched: .*; expected a network, or a local file of JSON Lines",
    ):
        published().load()
    with pytest.raises(TaskError, match="its terms must be accepted there, and HF_TOKEN set"):
        published(gated=True).load()


def test_offline_the_installed_client_leads_to_the_same_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datasets")
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(TaskError, match="could not be fetched"):
        load_task("aime25").load()
    with pytest.raises(
        TaskError,
        match="task aime25: got the split 'train', expected one of test; other splits need",
    ):
        load_task("aime25").load("train")
