"""Plain expressions have the values that Python gives them; everything else is refused."""

from __future__ import annotations

import copy
import math

import pytest

from openconductor.graders.code_expressions import FAILURES, NotPlainExpression, evaluate

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


@pytest.mark.parametrize("expression", ["1 / 0", "[1] + 1", "_[9]", "int('x')", "sorted([1, 'a'])", "-text"])
def test_values_that_do_not_fit_fail_as_in_python(expression: str) -> None:
    with pytest.raises(FAILURES):
        evaluate(expression, NAMES)


def test_a_given_name_hides_a_function() -> None:
    assert evaluate("sum", {"sum": 3}) == 3
    with pytest.raises(NotPlainExpression):
        evaluate("sum([1])", {"sum": 3})
