"""Data files row by row and field by field: harmless forms, and errors that name the place."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest

from openconductor.errors import ConfigError, TaskError
from openconductor.tasks.data.rows import Row, needs, read_rows, sha256_of


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
    read = list(read_rows(path, name="data", start=5))
    assert [row.where for row in read] == ["data, line 1", "data, line 4", "data, line 6"]
    assert [row.number for row in read] == [5, 6, 7]
    row = {"a": "a\u2028b\u0085c\x0bd"}  # only a line feed ends a row
    data = json.dumps(row, ensure_ascii=False).encode() + b"\n"
    assert rows(written(tmp_path, data)) == [row]


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
    assert sha256_of(path, name="data") == hashlib.sha256(packed).hexdigest()
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
    text = '\ufeffQuestion,Answer\n"two\nlines","a, b"\nlast,\n'
    first, last = rows(written(tmp_path, text.encode(), "data.csv"))
    assert first == {"Question": "two\nlines", "Answer": "a, b"}
    assert last == {"Question": "last", "Answer": ""}
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
    message = r'requires the extra .*no_such_module.*: pip install "openconductor\[tasks\]"'
    with pytest.raises(ConfigError, match=message):
        needs("no_such_module")


# ── fields ────────────────────────────────────────────────────────────────────────────────────────
WRONG_FIELDS = """
text           | 5         | data, line 7: field 'a': got 5, expected a text
text           | "  "      | field 'a': got '  ', expected a text that is not blank
text           | null      | field 'a': got None, expected a text
text_or_number | true      | field 'a': got True, expected a text
amount         | "1"       | field 'a': got '1', expected a number
texts          | "ab"      | field 'a': got 'ab', expected a list of texts
texts          | ["a", 1]  | field 'a': got 1, expected only texts in the list
objects        | []        | expected a list of objects, of at least one
objects        | [{}, 1]   | field 'a': got 1, expected only objects in the list
identity       | 1.5       | field 'a': got 1.5, expected a text
identity       | ""        | expected a text that is not blank
"""


@pytest.mark.parametrize("line", WRONG_FIELDS.strip().splitlines())
def test_a_wrong_field_is_an_error_that_says_everything(line: str) -> None:
    reader, value, message = line.split(" | ")
    row = Row({"a": json.loads(value)}, "data, line 7")
    with pytest.raises(TaskError, match=re.escape(message)):
        getattr(row, reader.strip())("a")


def test_a_missing_field_names_the_others_and_a_long_value_is_cut_in_its_error() -> None:
    missing = "data, line 7: field 'b': missing; got the fields a, expected a text"
    with pytest.raises(TaskError, match=missing):
        Row({"a": 5}, "data, line 7").text("b")
    with pytest.raises(TaskError) as caught:
        Row({"a": ["x" * 9999]}, "data").text("a")
    assert len(str(caught.value)) < 200


def test_fields_of_the_right_type_are_read_as_they_are() -> None:
    values = {"text": " a ", "blank": "", "whole": 3, "half": 0.5, "list": ["a", ""], "null": None}
    row = Row(values, "data, line 7")
    assert (row.text("text"), row.text("blank", blank=True)) == (" a ", "")
    assert (row.text_or_number("whole"), row.text_or_number("half")) == ("3", "0.5")
    assert (row.amount("half"), row.amount("null"), row.texts("list")) == (0.5, None, ["a", ""])
    assert (row.identity("whole"), row.identity("text")) == (3, " a ")
    assert [row.text_or(name, "d") for name in ("null", "none", "blank")] == ["d", "d", ""]
