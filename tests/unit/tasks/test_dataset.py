"""Tasks made of rows: ids, limits, digests, records; and fetching, with a double of the client."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from written_rows import write_rows

from openconductor.errors import TaskError
from openconductor.tasks import load_task
from openconductor.tasks.data import dataset as dataset_module
from openconductor.tasks.data.dataset import COMMIT, DatasetTask, UnpinnedData
from openconductor.tasks.data.items import DataFile
from openconductor.tasks.math import AIME25


def local(folder: Path, rows: Sequence[object], name: str = "data.jsonl") -> Path:
    return write_rows(folder / name, rows)


def sums(count: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for n in range(count):
        rows.append({"id": f"p{n}", "problem": f"What is {n} + 1?", "answer": n + 1})
    return rows


def ids(path: Path, **options: object) -> list[str]:
    return [problem.id for problem in load_task("math500", path=path, **options).load()]


def test_a_file_stands_for_every_split_and_a_folder_holds_one_file_each(tmp_path: Path) -> None:
    path = local(tmp_path, sums(3), "train.jsonl")
    local(tmp_path, sums(2), "dev.jsonl")
    problems = load_task("math", path=path).load("test")
    facts = [(problem.id, problem.reference, problem.task) for problem in problems]
    assert facts == [("p0", "1", "math"), ("p1", "2", "math"), ("p2", "3", "math")]
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
    # The draw does not depend on the order of the rows.
    backwards = local(tmp_path, sums(50)[::-1], "reversed.jsonl")
    assert set(ids(backwards, limit=10, seed=1)) == set(drawn)
    assert len(ids(path, limit=99)) == 50


@pytest.mark.parametrize("limit", [None, 1])
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (sums(1) * 2, r"data\.jsonl, line 2: the id 'p0' is also that of .*data\.jsonl, line 1"),
        ([{"id": "a", "problem": "p"}], r"line 1: field 'answer': missing; got the fields id, p"),
        ([{"problem": "p", "answer": "1"}], r"line 1: field 'id': missing"),
        ([], r"data\.jsonl: got no row, expected problems"),
    ],
)
def test_a_row_that_is_wrong_is_an_error_that_names_it(
    tmp_path: Path, rows, limit: int | None, message: str
) -> None:
    with pytest.raises(TaskError, match=message):
        ids(local(tmp_path, rows), limit=limit)


def test_a_run_can_write_down_the_origin_of_its_problems(tmp_path: Path) -> None:
    path = local(tmp_path, sums(4))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    record = load_task("math500", path=path, limit=3).source.record()
    assert json.loads(json.dumps(record)) == {
        "dataset": "local file",
        "split": "test",
        "revision": None,
        "pinned": False,
        "licence": "unknown",
        "sha256": digest,
        "files": [{"name": str(path), "sha256": digest, "rows": 4}],
        "rows": 4,
        "problems": 3,
        "fields": ["answer", "id", "problem"],
        "left_out": [],
        "notes": [],
        "parts": [],
    }
    assert load_task("math500", path=path, sha256=digest.upper()).source.pinned
    with pytest.raises(TaskError, match=f"data.jsonl: got the SHA-256 {digest}, expected 00"):
        load_task("math500", path=path, sha256="00").load()


PINNED, NEWEST = "a" * 40, "b" * 40
DATA = b'{"id": "1", "problem": "p", "answer": "1"}\n'
SHA256 = hashlib.sha256(DATA).hexdigest()


class NetworkFault(Exception):
    """An error of the client's HTTP library."""


class Hub:
    """A double of the hub's client: its cache, the requests made of it, and maybe a failure."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[tuple[str, str | None]] = []
        self.failure: Exception | None = None
        self.unreachable: Exception | None = None
        self.data = DATA

    def head(self, address: str, *, timeout: float) -> None:
        if self.unreachable is not None:
            raise self.unreachable

    def download(
        self,
        dataset: str,
        file: str,
        *,
        repo_type: str,
        revision: str | None,
        local_files_only: bool,
    ) -> str:
        assert (dataset, repo_type) == (AIME25.id, "dataset")
        assert local_files_only == (self.unreachable is not None), "else it retries for long"
        self.requests.append((file, revision))
        if self.failure is not None:
            raise self.failure
        commit = revision if revision is not None and COMMIT.fullmatch(revision) else NEWEST
        path = self.folder / "snapshots" / commit / file
        path.parent.mkdir(parents=True, exist_ok=True)
        first_id = b'"2"' if "two" in file else b'"1"'
        path.write_bytes(self.data.replace(b'"1"', first_id, 1))
        return str(path)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    double = Hub(tmp_path)
    modules = {
        "datasets": None,
        "huggingface_hub": SimpleNamespace(
            hf_hub_download=double.download,
            get_session=lambda: SimpleNamespace(head=double.head),
            constants=SimpleNamespace(ENDPOINT="https://hub"),
        ),
        "huggingface_hub.errors": SimpleNamespace(
            HTTPError=NetworkFault, EntryNotFoundError=KeyError
        ),
    }
    monkeypatch.setattr(dataset_module, "needs", modules.__getitem__)
    return double


def published(
    pinned: str | None = PINNED,
    *,
    sha256: str = SHA256,
    rows: int = 1,
    gated: bool = False,
    **options,
) -> DatasetTask:
    files = (DataFile("data/one.jsonl", sha256, rows), DataFile("data/two.jsonl"))
    dataset = replace(AIME25, revision=pinned, splits={"test": files}, gated=gated)
    return DatasetTask(dataset, **options)


def test_a_pinned_data_set_is_fetched_by_its_commit_without_a_word(hub: Hub) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = published().source
    assert hub.requests == [("data/one.jsonl", PINNED), ("data/two.jsonl", PINNED)]
    assert (source.dataset, source.revision) == ("math-ai/aime25", PINNED)
    assert (source.pinned, source.rows) == (True, 2)
    assert source.files[0] == DataFile("math-ai/aime25/data/one.jsonl", SHA256, 1)
    both = f"{SHA256}\n{source.files[1].sha256}\n"
    assert source.sha256 == hashlib.sha256(both.encode()).hexdigest()
    assert source.licence.startswith("not stated")


@pytest.mark.usefixtures("hub")
def test_bytes_and_rows_that_are_not_what_they_were_are_refused() -> None:
    where = "math-ai/aime25/data/one.jsonl"
    changed = f"{where} at {PINNED}: got the SHA-256 {SHA256}, expected 0000"
    with pytest.raises(TaskError, match=changed):
        published(sha256="0" * 64).load()
    with pytest.raises(TaskError, match=f"{where}: got 1 rows, expected 30"):
        published(rows=30).load()
    # Nothing is known of another commit.
    source = published(sha256="0" * 64, rows=30, revision="c" * 40).source
    assert (source.revision, source.pinned) == ("c" * 40, True)


@pytest.mark.parametrize("revision", [None, "main"])
def test_a_data_set_that_is_not_pinned_warns_and_all_its_files_are_of_one_commit(
    hub: Hub, revision: str | None
) -> None:
    message = f"math-ai/aime25 is not pinned; loaded commit {NEWEST}; to load it again: revision="
    with pytest.warns(UnpinnedData, match=message):
        source = published(None, revision=revision).source
    assert (source.pinned, source.revision) == (False, NEWEST)
    assert hub.requests == [("data/one.jsonl", revision), ("data/two.jsonl", NEWEST)]


FAILURES = [OSError("offline"), NetworkFault("refused"), KeyError("no file"), ValueError()]


@pytest.mark.parametrize("failure", FAILURES)
def test_without_a_network_the_local_file_is_named_as_the_way_on(
    hub: Hub, failure: Exception
) -> None:
    hub.failure = failure
    message = r"could not be fetched: .*; expected a network, or a local file of JSON Lines"
    with pytest.raises(TaskError, match=message):
        published().load()
    with pytest.raises(TaskError, match="its terms must be accepted there, and HF_TOKEN set"):
        published(gated=True).load()


def test_a_hub_that_cannot_be_reached_is_asked_once_and_its_cache_still_counts(hub: Hub) -> None:
    hub.unreachable = NetworkFault("Name or service not known")
    assert published().source.rows == 2
    hub.failure = OSError("not in the cache")
    message = "could not be fetched: https://hub cannot be reached: Name or service not known; exp"
    with pytest.raises(TaskError, match=message):
        published().load()


def test_offline_the_installed_client_leads_to_the_same_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("datasets")
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(TaskError, match="could not be fetched"):
        load_task("aime25").load()
    message = "task aime25: got the split 'train', expected one of test; other splits need"
    with pytest.raises(TaskError, match=message):
        load_task("aime25").load("train")


def test_of_one_published_split_a_share_of_the_questions_is_held_out(
    hub: Hub, tmp_path: Path
) -> None:
    """A question that is published twice is in one split with its double."""
    rows = [
        {"id": f"r{n}", "problem": f"What is {n % 200} + 1?", "answer": "1"} for n in range(400)
    ]
    hub.data = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    files = (DataFile("data/one.jsonl"),)
    one_split = replace(
        AIME25, revision=PINNED, splits={"train": files, "test": files}, held_out=0.25
    )
    task = DatasetTask(one_split)
    learnt = {problem.question for problem in task.load("train")}
    held_out = {problem.question for problem in task.load("test")}
    assert not learnt & held_out
    assert len(task.load("train")) + len(task.load("test")) == 400
    assert 30 <= len(held_out) <= 70
    assert DatasetTask(one_split, seed=5).load("test") == task.load("test")
    assert len(DatasetTask(one_split, path=local(tmp_path, sums(8))).load("test")) == 8
