"""Data files row by row and field by field: what does no harm, and what is an error that says where."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from openconductor.errors import ConfigError, TaskError
from openconductor.tasks.rows import Row, needs, read_rows, sha256_of


def rows(path: Path) -> list[dict[str, object]]:
    return [dict(row.values) for row in read_rows(path, name="data")]


def written(folder: Path, data: bytes, name: str = "data.jsonl") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


# ── files ─────────────────────────────────────────────────────────────────────────────────────────
def test_a_byte_order_mark_crlf_blank_lines_and_other_line_breaks_do_no_harm(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, b'\xef\xbb\xbf{"a": 1}\r\n\r\n  \n{"a": 2}\r\n\n{"a": 3}')
    assert rows(path) == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert [row.where for row in read_rows(path, name="data")] == [
        "data, line 1",
        "data, line 4",
        "data, line 6",
    ]
    assert [row.number for row in read_rows(path, name="data", start=5)] == [5, 6, 7]
    text = "a\u2028b\u0085c\x0bd"  # only a line feed ends a row
    assert rows(
        written(tmp_path, json.dumps({"a": text}, ensure_ascii=False).encode() + b"\n")
    ) == [{"a": text}]


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
def test_a_line_that_is_no_object_is_an_error_with_its_number(
    tmp_path: Path, data: bytes, message: str
) -> None:
    with pytest.raises(TaskError, match=message):
        rows(written(tmp_path, data))


def test_a_gzipped_file_is_read_and_hashed_as_it_lies_there(tmp_path: Path) -> None:
    packed = gzip.compress(b'{"a": 1}\n' * 999, mtime=0)
    path = written(tmp_path, packed, "data.jsonl.gz")
    assert len(rows(path)) == 999
    assert sha256_of(path, name="data") != sha256_of(
        written(tmp_path, b'{"a": 1}\n' * 999), name="data"
    )
    for cut in (packed[:-20], packed[:-4], packed[:5], b"no gzip"):
        with pytest.raises(TaskError, match=r"data: cannot be read: .*; expected JSON Lines"):
            rows(written(tmp_path, cut, "data.jsonl.gz"))


def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    for read in (rows, lambda path: sha256_of(path, name="data")):
        with pytest.raises(TaskError, match="data: no such file; expected JSON Lines"):
            read(tmp_path / "none.jsonl")
        with pytest.raises(TaskError, match=r"data: cannot be read: .*[Ii]s a directory"):
            read(tmp_path)


def test_csv_is_read_with_its_quoted_line_breaks(tmp_path: Path) -> None:
    path = written(
        tmp_path, '\ufeffQuestion,Answer\n"two\nlines","a, b"\nlast,\n'.encode(), "data.csv"
    )
    assert rows(path) == [
        {"Question": "two\nlines", "Answer": "a, b"},
        {"Question": "last", "Answer": ""},
    ]
    with pytest.raises(TaskError, match="data: not CSV in UTF-8"):
        rows(written(tmp_path, b"a\n\xff\n", "data.csv"))


def test_parquet_is_read_with_the_extra(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    values = [{"question": "q", "choices": ["a", "b"], "answer": 1, "inner": {"x": "y"}}]
    parquet.write_table(pa.Table.from_pylist(values), tmp_path / "data.parquet")
    assert rows(tmp_path / "data.parquet") == values
    with pytest.raises(TaskError, match="data: not Parquet: "):
        rows(written(tmp_path, b"no", "other.parquet"))
    with pytest.raises(
        ConfigError,
        match=r'no_such_module.*; expected its extra .*: pip install "openconductor\[tasks\]"',
    ):
        needs("no_such_module")


# ── fields ────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("value", "read", "message"),
    [
        (
            5,
            lambda row: row.text("b"),
            "data, line 7: field 'b': missing; got the fields a, expected a text",
        ),
        (5, lambda row: row.text("a"), "data, line 7: field 'a': got 5, expected a text"),
        ("  ", lambda row: row.text("a"), "field 'a': got '  ', expected a text that is not blank"),
        (None, lambda row: row.text("a"), "field 'a': got None, expected a text"),
        (True, lambda row: row.text_or_number("a"), "field 'a': got True, expected a text"),
        ("1", lambda row: row.amount("a"), "field 'a': got '1', expected a number"),
        ("ab", lambda row: row.texts("a"), "field 'a': got 'ab', expected a list of texts"),
        (
            ["a", 1],
            lambda row: row.texts("a"),
            "field 'a': got 1, expected only texts in the list",
        ),
        ([], lambda row: row.objects("a"), "expected a list of objects, of at least one"),
        (
            [{}, 1],
            lambda row: row.objects("a"),
            "field 'a': got 1, expected only objects in the list",
        ),
        (1.5, lambda row: row.identity("a"), "field 'a': got 1.5, expected a text"),
        ("", lambda row: row.identity("a"), "expected a text that is not blank"),
    ],
)
def test_a_wrong_field_is_an_error_that_says_everything(value: object, read, message: str) -> None:
    with pytest.raises(TaskError) as caught:
        read(Row({"a": value}, "data, line 7"))
    assert message in str(caught.value)


def test_fields_of_the_right_type_are_read_as_they_are() -> None:
    row = Row(
        {"text": " a ", "blank": "", "whole": 3, "half": 0.5, "list": ["a", ""], "null": None},
        "data, line 7",
    )
    assert (row.text("text"), row.text("blank", blank=True)) == (" a ", "")
    assert (row.text_or_number("whole"), row.text_or_number("half")) == ("3", "0.5")
    assert (row.amount("half"), row.amount("null"), row.texts("list")) == (0.5, None, ["a", ""])
    assert (row.identity("whole"), row.identity("text")) == (3, " a ")
    assert (row.text_or("null", "d"), row.text_or("none", "d"), row.text_or("blank", "d")) == (
        "d",
        "d",
        "",
    )
    with pytest.raises(TaskError) as caught:
        Row({"a": ["x" * 9999]}, "data").text("a")
    assert len(str(caught.value)) < 200  # a long value is cut in its error
