"""LiveCodeBench's rows: hidden tests out of a pickle that is never unpickled, and problems known to be faulty."""

from __future__ import annotations

import base64
import json
import pickle
import sys
import zlib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from shapes import items_of

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
        "contest_id": "abc900",
        "contest_date": "2023-08-21T00:00:00",
        "starter_code": "",
        "difficulty": "hard",
        "public_test_cases": json.dumps(tests[:1]),
        "private_test_cases": hidden(json.dumps(tests[1:])),
        "metadata": "{}",
        **changes,
    }


STDIN = [{"input": f"{n}\n", "output": f"{n}", "testtype": "stdin"} for n in range(3)]
CALLS = [{"input": f'[{n}]\n"x"', "output": f"{n}", "testtype": "functional"} for n in range(3)]


def test_public_and_hidden_tests_are_joined(tmp_path: Path) -> None:
    (item,) = items_of(tmp_path, "livecodebench_v1", row(STDIN))
    assert item.problem.reference == CodeTests(tuple(IoTest(f"{n}\n", f"{n}") for n in range(3)))
    assert (item.problem.id, item.problem.kind, item.subject) == ("abc900_a", "hard", "atcoder")
    assert (item.difficulty, item.canonical, item.tags) == (1.0, None, ())
    assert "standard input" in item.problem.question


def test_functional_tests_call_the_function_that_the_metadata_name(tmp_path: Path) -> None:
    changes = {
        "metadata": '{"func_name": "echo"}',
        "starter_code": "class Solution:\n    def echo(self, a, b):\n        ",
    }
    (item,) = items_of(tmp_path, "livecodebench_v6", row(CALLS, **changes))
    assert item.problem.reference == CodeTests(tuple(CallTest(([n], "x"), n) for n in range(3)), "echo")
    assert "class Solution:" in item.problem.question


def test_hidden_tests_may_stand_as_plain_json(tmp_path: Path) -> None:
    (item,) = items_of(tmp_path, "livecodebench_v1", row(STDIN, private_test_cases=json.dumps(STDIN[1:])))
    assert isinstance(item.problem.reference, CodeTests)
    assert len(item.problem.reference.tests) == 3


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("text", ["[]", '[1, "é\\ud83d"]', "[" + "1," * 70_000 + "1]"])
def test_a_pickle_of_one_text_is_read_in_every_protocol(protocol: int, text: str) -> None:
    assert hidden_tests(hidden(text, protocol)) == text


class Attack:
    """What runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (exec, ("raise SystemExit('unpickled')",))


@pytest.mark.parametrize(
    "value",
    [
        Attack(),
        ["[]"],
        {"a": "[]"},
        b"[]",
        7,
        None,
        ("[]", "[]"),
        ["x" * 10, Attack()],
        bytearray(b"x"),
        Path("x"),
    ],
    ids=lambda value: repr(value).split(" at 0x")[0],
)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_of_anything_else_is_refused_and_never_unpickled(
    value: object, protocol: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = hidden(value, protocol)

    def forbidden(*args: object, **options: object) -> None:
        raise AssertionError("unpickled")

    monkeypatch.setattr(pickle, "loads", forbidden)
    monkeypatch.setattr(pickle, "load", forbidden)
    monkeypatch.setattr(pickle, "Unpickler", forbidden)
    with pytest.raises(ValueError, match=r"a pickle (with the opcode|of)"):
        hidden_tests(packed)


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
        hidden_tests("{}!")
    with pytest.raises(ValueError, match="not compressed"):
        hidden_tests(base64.b64encode(b"plain").decode())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"private_test_cases": hidden(["[]"])}, "line 1: field 'private_test_cases': a pickle with the opcode"),
        ({"private_test_cases": hidden("{}")}, "field 'private_test_cases': got {}, expected a JSON list of tests"),
        ({"private_test_cases": hidden("[")}, "field 'private_test_cases': "),
        (
            {"public_test_cases": "[1]"},
            "field 'public_test_cases': got .1., expected a JSON list of tests",
        ),
        (
            {"public_test_cases": '[{"input": "1"}]'},
            "tests with the texts input, output and testtype",
        ),
        ({"public_test_cases": json.dumps(CALLS[:1])}, "expected tests of one type, stdin or functional"),
        ({"public_test_cases": "[]", "private_test_cases": "[]"}, "expected tests of one type"),
    ],
)
def test_a_wrong_row_is_an_error(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        items_of(tmp_path, "livecodebench_v1", row(STDIN, **changes))


@pytest.mark.parametrize("metadata", ["", "{}", "[]", "{", '{"func_name": 3}'])
def test_calls_need_the_name_of_the_function(tmp_path: Path, metadata: str) -> None:
    with pytest.raises(TaskError, match="line 1: field 'metadata': got "):
        items_of(tmp_path, "livecodebench_v1", row(CALLS, metadata=metadata))


def test_arguments_that_are_no_json_are_an_error(tmp_path: Path) -> None:
    calls = [{"input": "[1", "output": "1", "testtype": "functional"}]
    with pytest.raises(TaskError, match="functional test: "):
        items_of(tmp_path, "livecodebench_v1", row(calls * 2, metadata='{"func_name": "f"}'))


@pytest.mark.parametrize(
    ("identity", "title", "tags"),
    [
        ("abc350_c", "C. Sort", ("wrong-tests",)),
        ("2777", "Find the Peaks", ("multiple-solutions",)),
        ("abc337_e", "E. Bad Juice", ("interactive",)),
        ("abc337_d", "D. Cheating", ()),
    ],
)
def test_a_problem_that_is_known_to_be_faulty_is_tagged(tmp_path: Path, identity: str, title: str, tags) -> None:
    (item,) = items_of(tmp_path, "livecodebench_v1", row(STDIN, question_id=identity, question_title=title))
    assert item.tags == tags


def test_the_errata_are_seventeen() -> None:
    kinds = list(ERRATA.values())
    assert [kinds.count(kind) for kind in ("multiple-solutions", "interactive", "wrong-tests")] == [11, 2, 4]
