"""Tasks made of rows: shapes, ids, limits, digests, and what a run writes down."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from openconductor.errors import TaskError
from openconductor.tasks import dataset as dataset_module
from openconductor.tasks import load_task
from openconductor.tasks.hub import DataFile


def lines(rows: Sequence[object]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def local(folder: Path, rows: Sequence[object], name: str = "data.jsonl") -> Path:
    path = folder / name
    path.write_bytes(lines(rows))
    return path


def sums(count: int) -> list[dict[str, object]]:
    return [{"id": f"p{number}", "problem": f"What is {number} + 1?", "answer": number + 1} for number in range(count)]


def test_local_rows_become_problems(tmp_path: Path) -> None:
    task = load_task("math500", path=local(tmp_path, sums(3)))
    problems = task.load()
    assert [problem.id for problem in problems] == ["p0", "p1", "p2"]
    assert [problem.reference for problem in problems] == ["1", "2", "3"]
    assert {problem.task for problem in problems} == {"math500"}
    assert task.read().items[1].canonical == "The final answer is \\boxed{2}."


def test_a_file_stands_for_every_split_and_a_folder_holds_one_file_each(tmp_path: Path) -> None:
    path = local(tmp_path, sums(3), "train.jsonl")
    local(tmp_path, sums(2), "dev.jsonl")
    assert len(load_task("math", path=path).load("test")) == 3
    folder = load_task("math", path=tmp_path)
    assert (len(folder.load()), len(folder.load("dev"))) == (3, 2)
    with pytest.raises(TaskError, match=r"test\.jsonl: no such file"):
        folder.load("test")


def test_a_limit_draws_by_seed_and_keeps_the_order(tmp_path: Path) -> None:
    path = local(tmp_path, sums(50))
    drawn = {seed: [one.id for one in load_task("math500", path=path, limit=10, seed=seed).load()] for seed in (1, 2)}
    assert drawn[1] != drawn[2]
    assert all(sorted(ids, key=lambda name: int(name[1:])) == ids for ids in drawn.values())
    assert [one.id for one in load_task("math500", path=path, limit=10, seed=1).load()] == drawn[1]
    # What is drawn does not depend on where it stands, nor on what else there is.
    shuffled = local(tmp_path, list(reversed(sums(50))), "reversed.jsonl")
    assert {one.id for one in load_task("math500", path=shuffled, limit=10, seed=1).load()} == set(drawn[1])
    assert len(load_task("math500", path=path, limit=99).load()) == 50


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"id": "a", "problem": "p", "answer": "1"}, {"id": "a", "problem": "q", "answer": "2"}],
            r"data\.jsonl, line 2: the id 'a' is that of .*data\.jsonl, line 1; expected one of its own",
        ),
        ([{"id": "a", "problem": "p"}], r"data\.jsonl, line 1: field 'answer': missing; got the fields id, problem"),
        ([{"problem": "p", "answer": "1"}], r"line 1: field 'id': missing"),
        ([{"id": "a", "problem": 7, "answer": "1"}], r"line 1: field 'problem': got 7, expected a text"),
        ([{"id": "a", "problem": "p", "answer": [1]}], r"line 1: field 'answer': got \[1\], expected a text"),
        ([{"id": "a", "problem": "p", "answer": " "}], r"field 'answer': got ' ', expected a text that is not blank"),
        ([], r"data\.jsonl: got no row, expected problems"),
    ],
)
def test_a_row_that_is_wrong_is_an_error_that_names_it(tmp_path: Path, rows: list[object], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        load_task("math500", path=local(tmp_path, rows)).load()


def test_a_digest_that_is_expected_is_held_against_the_bytes(tmp_path: Path) -> None:
    path = local(tmp_path, sums(2))
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    assert load_task("math500", path=path, sha256=found.upper()).source.pinned
    with pytest.raises(TaskError, match=f"data.jsonl: got the SHA-256 {found}, expected 00"):
        load_task("math500", path=path, sha256="00").load()


def test_a_run_can_write_down_where_its_problems_came_from(tmp_path: Path) -> None:
    path = local(tmp_path, sums(4))
    record = load_task("math500", path=path, limit=3).source.record()
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    assert json.loads(json.dumps(record)) == {
        "dataset": "local file",
        "split": "test",
        "revision": None,
        "pinned": False,
        "licence": "unknown",
        "sha256": found,
        "files": [{"name": str(path), "sha256": found, "rows": 4}],
        "rows": 4,
        "problems": 3,
        "fields": ["answer", "id", "problem"],
        "left_out": [],
        "notes": [],
        "parts": [],
    }


def test_a_split_is_read_once(tmp_path: Path) -> None:
    path = local(tmp_path, sums(1))
    task = load_task("math500", path=path)
    first = task.read()
    path.unlink()
    assert task.read() is first


# ── published files; the hub is played ───────────────────────────────────────────────────────────────────────────────
def fetched(folder: Path, rows: Sequence[object], *, expected_rows: int | None = None) -> DataFile:
    path = local(folder, rows, "test.jsonl")
    return DataFile(path, f"set/{path.name}", hashlib.sha256(path.read_bytes()).hexdigest(), expected_rows)


def play(monkeypatch: pytest.MonkeyPatch, *files: DataFile, commit: str = "c" * 40, pinned: bool = True) -> None:
    monkeypatch.setattr(dataset_module, "fetch", lambda *args, **options: (list(files), commit, pinned))


def test_published_rows_carry_their_commit_and_licence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, fetched(tmp_path, sums(2), expected_rows=2))
    source = load_task("aime25").source
    assert (source.dataset, source.revision, source.pinned, source.problems) == ("math-ai/aime25", "c" * 40, True, 2)
    assert source.licence.startswith("not stated")
    play(monkeypatch, fetched(tmp_path, sums(2)), pinned=False)
    assert not load_task("aime25", revision="main").source.pinned


def test_a_file_must_hold_the_rows_that_are_known_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, fetched(tmp_path, sums(2), expected_rows=30))
    with pytest.raises(TaskError, match=r"set/test\.jsonl: got 2 rows, expected 30"):
        load_task("aime25").load()


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(TaskError, match="task aime25: got the split 'train', expected one of test; other splits need"):
        load_task("aime25").load("train")


def test_ids_of_rows_without_one_are_their_places_across_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def part(name: str, texts: Sequence[str]) -> DataFile:
        rows = [{"question": text, "answer": "It is 1.\n#### 1"} for text in texts]
        (tmp_path / name).mkdir()
        return fetched(tmp_path / name, rows)

    play(monkeypatch, part("one", ["a", "b"]), part("two", ["c"]))
    problems = load_task("gsm8k").load()
    assert [problem.id for problem in problems] == ["gsm8k/test/0", "gsm8k/test/1", "gsm8k/test/2"]
    assert [file.rows for file in load_task("gsm8k").source.files] == [2, 1]
