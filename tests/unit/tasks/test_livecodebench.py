"""LiveCodeBench's rows: hidden tests out of a pickle that is never unpickled, and problems known to be faulty."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from collections import Counter
from pathlib import Path

import pytest
from written_rows import items_of

from openconductor.errors import TaskError
from openconductor.graders.code_tests import CallTest, CodeTests, IoTest
from openconductor.tasks.livecodebench import ERRATA, LARGEST, hidden_tests, pickled_text


def hidden(text: object, protocol: int = pickle.HIGHEST_PROTOCOL) -> str:
    """As LiveCodeBench hides its tests."""
    return base64.b64encode(zlib.compress(pickle.dumps(text, protocol))).decode()


def row(tests: list[dict[str, str]], **changes: object) -> dict[str, object]:
    return {
        "question_title": "A. Echo",
        "question_content": "Print what you read.",
        "platform": "atcoder",
        "question_id": "abc900_a",
        "starter_code": "",
        "difficulty": "hard",
        "metadata": "{}",
        "public_test_cases": json.dumps(tests[:1]),
        "private_test_cases": hidden(json.dumps(tests[1:])),
        **changes,
    }


STDIN = [{"input": f"{n}\n", "output": f"{n}", "testtype": "stdin"} for n in range(3)]
CALLS = [{"input": f'[{n}]\n"x"', "output": f"{n}", "testtype": "functional"} for n in range(3)]


def test_public_and_hidden_tests_are_joined(tmp_path: Path) -> None:
    for hides in ({}, {"private_test_cases": json.dumps(STDIN[1:])}):  # hidden, or plain JSON
        (item,) = items_of(tmp_path, "livecodebench_v1", row(STDIN, **hides))
        assert item.problem.reference == CodeTests(
            tuple(IoTest(f"{n}\n", f"{n}") for n in range(3))
        )
    assert (item.problem.id, item.problem.kind, item.subject) == ("abc900_a", "hard", "atcoder")
    assert (item.difficulty, item.canonical, item.tags) == (1.0, None, ())
    assert "standard input" in item.problem.question
    starter = "class Solution:\n    def echo(self, a, b):\n        "
    changes = {"metadata": '{"func_name": "echo"}', "starter_code": starter}
    (item,) = items_of(tmp_path, "livecodebench_v6", row(CALLS, **changes))
    assert item.problem.reference == CodeTests(
        tuple(CallTest(([n], "x"), n) for n in range(3)), "echo"
    )
    assert "class Solution:" in item.problem.question


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("text", ["[]", '[1, "é\\ud83d"]', "[" + "1," * 70_000 + "1]"])
def test_a_pickle_of_one_text_is_read_in_every_protocol(protocol: int, text: str) -> None:
    assert hidden_tests(hidden(text, protocol)) == text


class Attack:
    """What runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (exec, ("raise SystemExit('unpickled')",))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_of_anything_else_is_refused_and_never_unpickled(protocol, monkeypatch) -> None:
    texts: list[object] = [["[]"], {"a": "[]"}, ("[]", "[]"), ["x" * 10, Attack()]]
    packed = [
        hidden(value, protocol)
        for value in (*texts, Attack(), b"[]", 7, None, bytearray(b"x"), Path("x"))
    ]

    def forbidden(*args: object, **options: object) -> None:
        raise AssertionError("unpickled")

    for name in ("loads", "load", "Unpickler"):
        monkeypatch.setattr(pickle, name, forbidden)
    for text in packed:
        with pytest.raises(ValueError, match=r"a pickle (with the opcode|of)"):
            hidden_tests(text)


@pytest.mark.parametrize(
    "pickled", [b"", b"no pickle", b"\x80\x05", b"cos\nsystem\n(S'true'\ntR.", b"\x80\x05\x8c\xff"]
)
def test_bytes_that_are_no_pickle_are_refused(pickled: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        pickled_text(pickled)


def test_what_is_cut_off_or_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = base64.b64decode(hidden("[]" * 999))
    with pytest.raises(ValueError, match="cut off"):
        hidden_tests(base64.b64encode(whole[:-9]).decode())
    monkeypatch.setattr("openconductor.tasks.livecodebench.LARGEST", 100)
    with pytest.raises(ValueError, match="more than 100 bytes"):
        hidden_tests(hidden("[]" * 999))
    assert LARGEST >= 1 << 28
    for text, message in (
        ("no!", "neither JSON nor base64"),
        (base64.b64encode(b"plain").decode(), "not compressed"),
    ):
        with pytest.raises(ValueError, match=message):
            hidden_tests(text)


@pytest.mark.parametrize(
    ("tests", "changes", "message"),
    [
        (
            STDIN,
            {"private_test_cases": hidden(["[]"])},
            "field 'private_test_cases': a pickle with the opcode",
        ),
        (
            STDIN,
            {"private_test_cases": hidden("{}")},
            "field 'private_test_cases': got {}, expected a JSON list",
        ),
        (STDIN, {"private_test_cases": hidden("[")}, "field 'private_test_cases': "),
        (
            STDIN,
            {"public_test_cases": "[1]"},
            "field 'public_test_cases': got .1., expected a JSON list of tests",
        ),
        (
            STDIN,
            {"public_test_cases": '[{"input": "1"}]'},
            "tests with the texts input, output and testtype",
        ),
        (
            STDIN,
            {"public_test_cases": json.dumps(CALLS[:1])},
            "expected tests of one type, stdin or functional",
        ),
        (
            STDIN,
            {"public_test_cases": "[]", "private_test_cases": "[]"},
            "expected tests of one type",
        ),
        *(
            (CALLS, {"metadata": text}, "field 'metadata': ")
            for text in ("", "{}", "[]", "{", '{"func_name": 3}')
        ),
        (
            [{**CALLS[0], "input": "[1"}] * 2,
            {"metadata": '{"func_name": "f"}'},
            "functional test: ",
        ),
    ],
)
def test_a_wrong_row_is_an_error(
    tmp_path: Path, tests, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(TaskError, match=f"line 1: .*{message}"):
        items_of(tmp_path, "livecodebench_v1", row(tests, **changes))


@pytest.mark.parametrize(
    ("identity", "title", "tags"),
    [
        ("abc350_c", "C. Sort", ("wrong-tests",)),
        ("2777", "Find the Peaks", ("multiple-solutions",)),
        ("abc337_e", "E. Bad Juice", ("interactive",)),
        ("abc337_d", "D. Cheating", ()),
    ],
)
def test_a_problem_that_is_known_to_be_faulty_is_tagged(
    tmp_path: Path, identity: str, title: str, tags
) -> None:
    (item,) = items_of(
        tmp_path, "livecodebench_v1", row(STDIN, question_id=identity, question_title=title)
    )
    assert item.tags == tags
    assert Counter(ERRATA.values()) == {
        "multiple-solutions": 11,
        "interactive": 2,
        "wrong-tests": 4,
    }
