"""LiveCodeBench's rows: hidden tests of a pickle that is never unpickled, and faulty problems."""

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
    """Hide tests as LiveCodeBench does."""
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
    expected = CodeTests(tuple(IoTest(f"{n}\n", f"{n}") for n in range(3)))
    for hides in ({}, {"private_test_cases": json.dumps(STDIN[1:])}):  # hidden, or plain JSON
        (item,) = items_of(tmp_path, "livecodebench_v1", row(STDIN, **hides))
        assert item.problem.reference == expected
    assert (item.problem.id, item.problem.kind, item.subject) == ("abc900_a", "hard", "atcoder")
    assert (item.difficulty, item.canonical, item.tags) == (1.0, None, ())
    assert "standard input" in item.problem.question
    starter = "class Solution:\n    def echo(self, a, b):\n        "
    changes = {"metadata": '{"func_name": "echo"}', "starter_code": starter}
    (item,) = items_of(tmp_path, "livecodebench_v6", row(CALLS, **changes))
    calls = tuple(CallTest(([n], "x"), n) for n in range(3))
    assert item.problem.reference == CodeTests(calls, "echo")
    assert "class Solution:" in item.problem.question


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("text", ["[]", '[1, "é\\ud83d"]', "[" + "1," * 70_000 + "1]"])
def test_a_pickle_of_one_text_is_read_in_every_protocol(protocol: int, text: str) -> None:
    assert hidden_tests(hidden(text, protocol)) == text


class Attack:
    """An object that runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (exec, ("raise SystemExit('unpickled')",))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_of_anything_else_is_refused_and_never_unpickled(protocol, monkeypatch) -> None:
    values: list[object] = [["[]"], {"a": "[]"}, ("[]", "[]"), ["x" * 10, Attack()]]
    values += [Attack(), b"[]", 7, None, bytearray(b"x"), Path("x")]
    packed = [hidden(value, protocol) for value in values]

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
    with pytest.raises(ValueError, match="neither JSON nor base64"):
        hidden_tests("no!")
    with pytest.raises(ValueError, match="not compressed"):
        hidden_tests(base64.b64encode(b"plain").decode())


@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        ("private_test_cases", hidden(["[]"]), "field 'private_test_cases': a pickle with the op"),
        ("private_test_cases", hidden("{}"), "got {}, expected a JSON list"),
        ("private_test_cases", hidden("["), "field 'private_test_cases': "),
        ("public_test_cases", "[1]", "got .1., expected a JSON list of tests"),
        (
            "public_test_cases",
            '[{"input": "1"}]',
            "tests with the texts input, output and testtype",
        ),
        ("public_test_cases", json.dumps(CALLS[:1]), "expected tests of one type, stdin or func"),
    ],
)
def test_wrong_tests_are_an_error(tmp_path: Path, field: str, text: str, message: str) -> None:
    with pytest.raises(TaskError, match=f"line 1: .*{message}"):
        items_of(tmp_path, "livecodebench_v1", row(STDIN, **{field: text}))


def test_tests_that_are_none_or_no_json_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="expected tests of one type"):
        items_of(tmp_path, "livecodebench_v1", row([], private_test_cases="[]"))
    broken = [{**CALLS[0], "input": "[1"}] * 2
    with pytest.raises(TaskError, match="functional test: "):
        items_of(tmp_path, "livecodebench_v1", row(broken, metadata='{"func_name": "f"}'))


@pytest.mark.parametrize("text", ["", "{}", "[]", "{", '{"func_name": 3}'])
def test_calls_without_the_name_of_a_function_are_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(TaskError, match="line 1: field 'metadata': "):
        items_of(tmp_path, "livecodebench_v1", row(CALLS, metadata=text))


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
    faulty = row(STDIN, question_id=identity, question_title=title)
    (item,) = items_of(tmp_path, "livecodebench_v1", faulty)
    assert item.tags == tags


def test_the_errata_are_as_many_as_published() -> None:
    counts = {"multiple-solutions": 11, "interactive": 2, "wrong-tests": 4}
    assert Counter(ERRATA.values()) == counts
