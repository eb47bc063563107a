"""Tests that become values without running anything; comparisons outside of a sandbox."""

from __future__ import annotations

import copy
import math
from typing import get_args

import pytest

from openconductor.errors import TaskError
from openconductor.graders.code_compare import Mode, wrong_output, wrong_value
from openconductor.graders.code_expressions import FAILURES, NotPlainExpression, evaluate
from openconductor.graders.code_tests import (
    CallTest,
    CodeTests,
    IoTest,
    from_asserts,
    from_json_lines,
    from_rows,
)
from openconductor.sandboxes.encoding import encode


def test_rows_of_a_file_are_inputs_and_outputs_or_calls() -> None:
    rows: list[dict[str, object]] = [{"input": "1\n", "output": "2"}]
    rows += [{"args": [1, [2]], "expected": 3}, {"args": {"n": 1}, "expected": None}]
    tests = (IoTest("1\n", "2"), CallTest((1, [2]), 3), CallTest((), None, {"n": 1}))
    assert from_rows(rows, "f") == CodeTests(tests, "f")


@pytest.mark.parametrize(
    "row", [{}, {"input": "1"}, {"args": 1, "expected": 2}, {"args": [1]}, {"output": "x"}]
)
def test_a_row_of_another_shape_is_an_error_that_names_its_fields(row: dict[str, object]) -> None:
    with pytest.raises(TaskError, match="test 0: got the fields"):
        from_rows([row], "f")
    with pytest.raises(TaskError, match="entry point"):
        from_rows([{"args": [1], "expected": 2}])


def test_livecodebenchs_functional_tests_hold_a_value_a_line() -> None:
    tests = from_json_lines(['[1, 2]\n"x"'], ["[3.5, null]"], "f")
    assert tests == CodeTests((CallTest(([1, 2], "x"), [3.5, None]),), "f")
    for inputs, outputs in ((["["], ["1"]), (["1"], [])):
        with pytest.raises(TaskError, match="JSON"):
            from_json_lines(inputs, outputs, "f")


def asserted(*arguments: object, expected: object = None, **keywords: object) -> CallTest:
    return CallTest(arguments, expected, keywords, "python")


CONDITIONS = """
assert f(7)                    → _
assert not f(7)                → not _
assert f(7) is True            → _ is True
assert abs(f(7) - 0.5) < 1e-6  → abs(_ - 0.5) < 1e-06
assert set(f(7)) == set([1])   → set(_) == set([1])
assert 7 == f(7)               → 7 == _
"""


@pytest.mark.parametrize("line", CONDITIONS.strip().splitlines())
def test_an_assertion_that_is_no_equality_becomes_a_condition(line: str) -> None:
    source, condition = line.split("→")
    test = CallTest((7,), equality="python", condition=condition.strip())
    assert from_asserts(source) == CodeTests((test,), "f")


def test_equalities_become_calls_with_the_value_that_they_must_return() -> None:
    source = """
import math
assert f(1, [2]) == (3, "x")
assert f(n=-1) == None, "message"
x = 1
assert f(x) == x
x = 2
assert f(x) == x
"""
    first = (asserted(1, [2], expected=(3, "x")), asserted(n=-1))
    named = (asserted(1, expected=1), asserted(2, expected=2))
    assert from_asserts(source) == CodeTests((*first, *named), "f")


def test_a_check_function_names_the_candidate_and_may_count() -> None:
    source = """
METADATA = {"author": "nobody"}
def check(candidate):
    assert True, "this always holds"
    base = [1, 2]
    for x in range(2, 4):
        assert candidate(base, x) == str(x) * 2
"""
    calls = asserted([1, 2], 2, expected="22"), asserted([1, 2], 3, expected="33")
    assert from_asserts(source, "grow") == CodeTests(calls, "grow")


NOT_TURNED = """
assert f(1) == f(2)
assert f(f(1)) == 2
x = f(1)
assert f(*[1])
assert f(1) ** 3 == 8
assert False
with open('x'): assert f(1)
f(1)
"""
NEEDS_THE_ANSWER = """
assert f(random.random()) < 1
assert f(Pair(1, 2)) == 3
assert g(f(1))
"""


@pytest.mark.parametrize("statement", NOT_TURNED.strip().splitlines())
def test_a_program_that_cannot_be_turned_whole_is_judged_as_a_program(statement: str) -> None:
    source = f"assert f(0) == 1\n{statement}"
    tests = from_asserts(source, "f")
    assert (tests, tests.judged_by) == (CodeTests((), "f", source), "outside")


@pytest.mark.parametrize("statement", NEEDS_THE_ANSWER.strip().splitlines())
def test_what_a_program_judged_inside_asserts_plainly_is_judged_outside_too(statement: str) -> None:
    source = f"assert f(0) == 1\n{statement}"
    tests = from_asserts(source, "f")
    assert tests == CodeTests((asserted(0, expected=1),), "f", source)
    assert tests.judged_by == "inside"


def test_the_function_under_test_is_the_first_that_is_no_builtin() -> None:
    assert from_asserts("assert set(common([1])) == {1}").entry_point == "common"
    assert from_asserts("assert sum(10, 15) == 6").entry_point == "sum"


@pytest.mark.parametrize(
    ("source", "message"), [("assert f(", "expected Python"), ("x = 1", "entry point")]
)
def test_a_program_without_a_test_is_an_error(source: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        from_asserts(source)


MODES: tuple[Mode, ...] = get_args(Mode)
LONG = "12345678901234567890123456789"
# An output and what was expected, as Python writes them between the quotes.
SAME = r"""
  5 \n\n = 5
1\n2\n = 1\r\n2\r\n
3.0 = 3
0.50 1e2 = .5 100
1   2 = 1 2
+7 = 7
 = \n
12345678901234567890123456789 = 12345678901234567890123456789.0
"""
OTHER = r"""
5 = 6
1\n2 = 1 2
1 2 3 = 1 2
1\n\n2 = 1\n2
YES = Yes
a b = ab
 = 0
50000000000000001 = 50000000000000000
0.30000000000000004 = 0.3
nan = 0
one = 1
#  # = # #
"""


def outputs(table: str) -> list[list[str]]:
    """Return pairs of an output and what was expected."""
    lines = table.strip("\n").splitlines()
    return [line.encode().decode("unicode_escape").split(" = ") for line in lines]


@pytest.mark.parametrize("mode", MODES)
def test_outputs_are_compared_line_by_line_and_numbers_by_value(mode: Mode) -> None:
    for output, expected in outputs(SAME):
        assert wrong_output(IoTest("", expected), output, mode) == "", output
    for output, expected in outputs(OTHER):
        assert wrong_output(IoTest("", expected), output, mode), output


@pytest.mark.parametrize(
    ("output", "expected", "strict", "compat"),
    [
        ("Case 1: 3.0", "Case 1: 3", True, False),
        ("Case  1: 3.0", "Case 1: 3", False, False),  # the gaps are part of such a line
        ("1_0", "10", False, True),
        ("Infinity", "inf", False, True),
        ("\u0661", "1", False, True),
    ],
)
def test_the_modes_differ_over_words_beside_numbers_and_over_what_only_decimal_reads(
    output: str, expected: str, strict: bool, compat: bool
) -> None:
    test = IoTest("", expected)
    assert (wrong_output(test, output, "strict") == "") is strict
    assert (wrong_output(test, output, "lcb-compat") == "") is compat


def test_a_huge_number_is_compared_at_once() -> None:
    assert wrong_output(IoTest("", "1"), "1e999999999", "strict") != ""
    assert wrong_output(IoTest("", "1e999999999"), "10e999999998", "strict") == ""


def test_a_fault_names_the_line_and_not_what_was_expected() -> None:
    fault = wrong_output(IoTest("", "1\n4815"), "1\nx" + "y" * 1000, "strict")
    assert "line 2" in fault
    assert "4815" not in fault
    assert len(fault) < 200


EQUAL = [3, [1, [2]], "x", None, 0.5]
DIFFERENT = [(3, 4), ([1], [1, 2]), ("3", 3), (None, 0), (b"x", "x"), ({1, 2}, [1, 2]), ({}, [])]
OF_OTHER_TYPES = [(3.0, 3), (True, 1), ([1.0], [1])]


def equal(value: object, expected: object) -> list[bool]:
    """Compare by type, as LiveCodeBench does, and as ``==`` says in both modes."""
    typed, python = CallTest((), expected), CallTest((), expected, equality="python")
    reply = encode(value)
    faults = [wrong_value(test, reply, mode) for test in (typed, python) for mode in MODES]
    return [not fault for fault in faults]


def test_values_are_equal_by_type_by_livecodebench_or_as_python_says() -> None:
    for value in EQUAL:
        assert equal(value, value) == [True, True, True, True]
    assert equal({"a": 1, "b": 2}, {"b": 2, "a": 1}) == [True, True, True, True]
    for value, expected in (*DIFFERENT, ([1, (2,)], [1, [2]])):
        assert equal(value, expected) == [False, False, False, False]
    for value, expected in OF_OTHER_TYPES:
        assert equal(value, expected) == [False, True, True, True]
    # A returned tuple is a list for LiveCodeBench, unless the test says ==.
    assert equal((1, 2), [1, 2]) == [False, True, False, False]


@pytest.mark.parametrize(
    ("condition", "right", "wrong"),
    [
        ("abs(_ - 0.33) < 1e-06", 0.3300001, 0.34),
        ("not _", [], [0]),
        ("_ is True", True, 1),
        ("set(_) == {1, 2}", [2, 1, 1], [1]),
        ("math.isclose(_, 10, rel_tol=0.001)", 10.001, "ten"),
        ("_[0] == 'a' and len(_) == 2", "ab", ""),
    ],
)
def test_a_condition_holds_or_not(condition: str, right: object, wrong: object) -> None:
    test = CallTest((), condition=condition)
    assert wrong_value(test, encode(right), "strict") == ""
    assert wrong_value(test, encode(wrong), "strict") == "wrong value"


@pytest.mark.parametrize("reply", ["", "junk", encode(3) + "x", '{"set": 1}', "[" * 100_000])
def test_a_reply_that_is_no_value_is_wrong(reply: str) -> None:
    for test in (CallTest((), 3), CallTest((), condition="_ == 3")):
        assert wrong_value(test, reply, "strict").startswith("wrong value")


NAMES: dict[str, object] = {"_": [3, 1, 2], "n": 7, "text": "abc"}

PLAIN = """
-7 // 2 % 3 + 2 ** 10 - 4 / 8 * 3
[1, 'a', (2.5, None), {3}, {4: [5]}, b'x' + b'y', [0] * 3 + [n], 'ab' * 2]
not n or n > 3 and text
n if 1 < n <= 7 != 8 and 2 in _ and 9 not in _ else text
_[0] + _[-1] + len(_[1:]) + (5 & 6 | 1 ^ 8) + ~3
sorted(_, reverse=True) == [3, 2, 1] and sum(_) == max(_) + min(_) + 2
tuple(set(_)), list(range(2, 8, 3)), dict([(1, 2)]), str(n) + repr(text)
abs(-n), any([0, n]) and all([])
isinstance(_, list) and isinstance(n, (int, str)) and not isinstance(_, (set, frozenset, dict))
'-'.join(['a', 'b']), 'a b'.split()
round(2.5), round(1234, -2), round(number=2.567, ndigits=2)
math.isclose(math.pi, 3.14159, rel_tol=1e-3), copy.deepcopy([1])
"""
REFUSED = """
unknown
__import__('os')
text.upper()
().__class__
lambda: 1
[x for x in _]
f'{n}'
sorted(_, key=abs)
2 ** 10 ** 10
[0] * 10 ** 8
list(range(10 ** 9))
{**{}}
max(*[1, 2])
(x := 1)
1 << 100
math.factorial(5)
'a'.format(n)
'%999999999d' % n
round(n, -10 ** 9)
set(list(range(100000)))
dict(list(range(100000)))
dict(**{'a': 1})
"""


@pytest.mark.parametrize("expression", PLAIN.strip().splitlines())
def test_a_plain_expression_has_pythons_value(expression: str) -> None:
    wanted = eval(expression, {"math": math, "copy": copy}, dict(NAMES))
    got = evaluate(expression, NAMES)
    assert (got, type(got)) == (wanted, type(wanted))


@pytest.mark.parametrize("expression", REFUSED.strip().splitlines())
def test_anything_else_is_refused(expression: str) -> None:
    with pytest.raises(NotPlainExpression):
        evaluate(expression, NAMES)


@pytest.mark.parametrize(
    "expression", ["1 / 0", "[1] + 1", "_[9]", "int('x')", "sorted([1, 'a'])", "-text"]
)
def test_values_that_do_not_fit_fail_as_in_python(expression: str) -> None:
    with pytest.raises(FAILURES):
        evaluate(expression, NAMES)


def test_a_given_name_hides_a_function() -> None:
    assert evaluate("sum", {"sum": 3}) == 3
    with pytest.raises(NotPlainExpression):
        evaluate("sum([1])", {"sum": 3})
