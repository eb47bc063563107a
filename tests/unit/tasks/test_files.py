"""Data files row by row: what does no harm, and what is an error that names its line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from openconductor.errors import ConfigError, TaskError
from openconductor.tasks.rows import needs, read_rows, sha256_of


def rows(path: Path) -> list[dict[str, object]]:
    return [dict(row.values) for row in read_rows(path, name="data")]


def written(folder: Path, data: bytes, name: str = "data.jsonl") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def test_a_byte_order_mark_crlf_and_blank_lines_do_no_harm(tmp_path: Path) -> None:
    path = written(tmp_path, b'\xef\xbb\xbf{"a": 1}\r\n\r\n  \n{"a": 2}\r\n\n{"a": 3}')
    assert rows(path) == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert [row.where for row in read_rows(path, name="data")] == ["data, line 1", "data, line 4", "data, line 6"]
    assert [row.number for row in read_rows(path, name="data", start=5)] == [5, 6, 7]


def test_only_a_line_feed_ends_a_row(tmp_path: Path) -> None:
    text = "a\u2028b\u0085c\x0bd"
    assert rows(written(tmp_path, json.dumps({"a": text}, ensure_ascii=False).encode() + b"\n")) == [{"a": text}]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": 1}\n{"a": }\n', "data, line 2: not JSON: .*; expected one JSON object a line"),
        (b'{"a": 1}\n\n[1]\n', r"data, line 3: got \[1\], expected a JSON object"),
        (b'{"a": "\xff"}\n', "data, line 1: byte 7 is not UTF-8; expected a JSON object in UTF-8"),
        (b'{"a": ' + b"9" * 5000 + b"}\n", "data, line 1: not JSON: "),
        (b"[" * 200_000 + b"\n", "data, line 1: not JSON: "),
        (b'{"a": 1}\n\xef\xbb\xbf{"a": 2}\n', "data, line 2: not JSON: "),
    ],
)
def test_a_line_that_is_no_object_is_an_error_with_its_number(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        rows(written(tmp_path, data))


def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="data: no such file"):
        rows(tmp_path / "none.jsonl")
    with pytest.raises(TaskError, match="data: is a folder; expected a file of JSON Lines"):
        rows(tmp_path)
    with pytest.raises(TaskError, match="data: no such file"):
        sha256_of(tmp_path / "none.jsonl", name="data")
    with pytest.raises(TaskError, match="data: cannot be read: "):
        rows(written(tmp_path, b"no gzip", "data.jsonl.gz"))


def test_a_gzipped_file_is_read_and_hashed_as_it_lies_there(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress(b'{"a": 1}\n', mtime=0), "data.jsonl.gz")
    assert rows(path) == [{"a": 1}]
    assert sha256_of(path, name="data") != sha256_of(written(tmp_path, b'{"a": 1}\n'), name="data")


def test_csv_is_read_with_its_quoted_line_breaks(tmp_path: Path) -> None:
    path = written(tmp_path, '\ufeffQuestion,Answer\n"two\nlines","a, b"\nlast,\n'.encode(), "data.csv")
    assert rows(path) == [{"Question": "two\nlines", "Answer": "a, b"}, {"Question": "last", "Answer": ""}]


def test_a_missing_extra_says_which_command_installs_it() -> None:
    with pytest.raises(ConfigError, match=r'no_such_module is not installed; pip install "openconductor\[tasks\]"'):
        needs("no_such_module")


def test_parquet_is_read_through_datasets(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("datasets")
    import pyarrow as pa

    path = tmp_path / "data.parquet"
    values = [{"question": "q", "choices": ["a", "b"], "answer": 1, "inner": {"x": "y"}}]
    parquet.write_table(pa.Table.from_pylist(values), path)
    assert rows(path) == values
    with pytest.raises(TaskError, match="data: not Parquet: "):
        rows(written(tmp_path, b"no", "other.parquet"))
