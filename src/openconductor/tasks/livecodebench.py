"""LiveCodeBench, V1 and V6, as published (code_generation_lite).

Its hidden tests are a pickle, compressed and in base64. **It is never unpickled**: a pickle can run
anything. Its opcodes are read one by one, and only those that make a single text are let through;
that text is JSON.

``livecodebench_v1`` is the first release: 400 problems from May 2023 to March 2024.
``livecodebench_v6`` is the part that the sixth added: 175 problems, to April 2025; its split
``release`` is all up to there, V1 among it (1,055 problems).

The grader's mode is ``lcb-compat``, because figures are compared with LiveCodeBench's. Problems of
its list of errata carry a tag: of several right outputs only one is accepted, or the tests are
wrong, or the problem is interactive.
"""

from __future__ import annotations

import base64
import binascii
import json
import pickletools
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, TypeVar, cast

from pydantic import Field

from openconductor.graders.code import CodeGrader
from openconductor.graders.code_tests import CodeTests, IoTest, from_json_lines
from openconductor.store.serialisation import load
from openconductor.tasks.code import LOCAL
from openconductor.tasks.data.dataset import Dataset, Shape
from openconductor.tasks.data.items import DataFile, Item
from openconductor.tasks.data.rows import Row
from openconductor.tasks.prompts import function_prompt, program_prompt

T = TypeVar("T")
LARGEST = 1 << 30
"""Bytes of the largest hidden tests of a problem, decompressed."""

_DIFFICULTIES = {"easy": 0.0, "medium": 0.5, "hard": 1.0}
_TEXT = {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"}
_AROUND = {"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"}

# ERRATA.md of LiveCodeBench/LiveCodeBench at 28fef95 (July 2025): ids, or titles if it has no id.
_ERRATA = {
    "multiple-solutions": (
        "abc311_c abc326_d abc327_b abc333_e abc343_e abc362_c find-words-containing-character "
        "find-the-peaks generate-binary-strings-without-adjacent-zeros arc185_c abc343_a"
    ),
    "interactive": "abc337_e abc355_e",
    "wrong-tests": "abc350_c apply-operations-to-make-string-empty most-frequent-ids arc189_a",
}
ERRATA: Mapping[str, str] = {
    name: fault for fault, names in _ERRATA.items() for name in names.split()
}


def hidden_tests(text: str) -> str:
    """Return the JSON of a field: as it is, or out of base64, zlib and a pickle of one text.

    The pickle is not unpickled.

    Raises:
        ValueError: it is neither; the message names the step.
    """
    if text.lstrip().startswith(("[", "{")):
        return text
    unzip = zlib.decompressobj()
    try:
        pickled = unzip.decompress(base64.b64decode(text, validate=True), LARGEST)
    except binascii.Error as error:
        raise ValueError(f"neither JSON nor base64: {error}") from error
    except zlib.error as error:
        raise ValueError(f"not compressed: {error}") from error
    if not unzip.eof:
        raise ValueError(f"cut off, or more than {LARGEST} bytes")
    return pickled_text(pickled)


def pickled_text(pickled: bytes) -> str:
    """Read the text of a pickle off its opcodes; nothing is unpickled.

    Raises:
        ValueError: it does not hold a single text, or is no pickle.
    """
    texts: list[str] = []
    for opcode, argument, _ in pickletools.genops(pickled):
        if opcode.name in _TEXT:
            texts.append(cast(str, argument))
        elif opcode.name not in _AROUND:
            raise ValueError(
                f"a pickle with the opcode {opcode.name}; expected one of a single text"
            )
    if len(texts) != 1:
        raise ValueError(f"a pickle of {len(texts)} texts, expected one")
    return texts[0]


@dataclass(frozen=True, slots=True)
class _Test:
    testtype: str
    input: str
    output: str


@dataclass(frozen=True, slots=True)
class _Metadata:
    func_name: Annotated[str, Field(min_length=1)]


def _published(row: Row) -> Item:
    tests: list[_Test] = []
    for field in ("public_test_cases", "private_test_cases"):
        expected = "a JSON list of tests with the texts input, output and testtype"
        tests += _load_json(row, field, list[_Test], expected)
    kinds = {test.testtype for test in tests}
    content = row.text("question_content")
    if kinds == {"stdin"}:
        pairs = [IoTest(test.input, test.output) for test in tests]
        reference = CodeTests(tuple(pairs))
        text = program_prompt(content)
    elif kinds == {"functional"}:
        reference = _functional_tests(row, tests)
        text = function_prompt(content, starter=row.text_or("starter_code"))
    else:
        expected = "tests of one type, stdin or functional"
        raise row.wrong("public_test_cases", sorted(kinds), expected)
    slug = row.text_or("question_title").strip().lower().replace(" ", "-")
    fault = ERRATA.get(row.id) or ERRATA.get(slug)
    difficulty = row.text_or("difficulty")
    return replace(
        row.item(text, reference, None, difficulty),
        subject=row.text_or("platform"),
        difficulty=_DIFFICULTIES.get(difficulty),
        tags=(fault,) if fault else (),
    )


def _functional_tests(row: Row, tests: Sequence[_Test]) -> CodeTests:
    expected = "a JSON object with the text func_name"
    metadata = _load_json(row, "metadata", _Metadata, expected)
    inputs = [test.input for test in tests]
    outputs = [test.output for test in tests]
    with row.of_field("private_test_cases"):
        return from_json_lines(inputs, outputs, metadata.func_name)


def _load_json(row: Row, field: str, kind: type[T], expected: str) -> T:
    """Load a value from the JSON in a field."""
    with row.of_field(field):
        value: object = json.loads(hidden_tests(row.text(field)))
    try:
        return load(kind, value)
    except ValueError as error:
        raise row.wrong(field, value, expected) from error


SHAPES = (
    Shape(("question_id", "question_content", "metadata"), _published, id="question_id"),
    LOCAL,
)
_RELEASE = (
    DataFile("test.jsonl", "2bd02b38beb48e8c46b5b9987095d999ff38cd8efc255ea5d58974317c48f63f", 400),
    DataFile(
        "test2.jsonl", "095df7c5daf15f882c51a9deb84085cff1e073495a5dbcf95015a564d485f3a3", 111
    ),
    DataFile(
        "test3.jsonl", "28ed26cc83363ce3f1fe2d5fad9f8393077beb1907b167a31bd3b32f80801b79", 101
    ),
    DataFile(
        "test4.jsonl", "d711138ddaebfcf5f8ec6a4283ee677298c0f5c5d374a235af92aaf0584510da", 101
    ),
    DataFile(
        "test5.jsonl", "7f77571c2a6df0c2a72a3277650309f67e01e0008e18117e624633df53f81214", 167
    ),
    DataFile(
        "test6.jsonl", "bb4c364f71921c4495a6ad15abe1a927350b720009f4933e2e71f8af0f6fd1f5", 175
    ),
)

LIVECODEBENCH_V1 = Dataset(
    "livecodebench_v1",
    "400 contest problems, May 2023 to March 2024 (Jain et al. 2024)",
    "livecodebench/code_generation_lite",
    "0fe84c3912ea0c4d4a78037083943e8f0c4dd505",
    "cc (no variant is named); problems of LeetCode, AtCoder and Codeforces",
    {"test": _RELEASE[:1]},
    shapes=SHAPES,
    grader=partial(CodeGrader, "lcb-compat"),
    notes=(
        "judged in the mode lcb-compat",
        "17 problems of the whole set are known to be faulty: their items carry a tag",
        "no reference solutions are published",
    ),
)
LIVECODEBENCH_V6 = replace(
    LIVECODEBENCH_V1,
    name="livecodebench_v6",
    about="the 175 contest problems that release 6 added, to April 2025",
    splits={"test": _RELEASE[5:], "release": _RELEASE},
)
