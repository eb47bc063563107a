r"""The program of a math worker: reads pairs of formulas and says whether they mean the same. Only here is sympy.

In: lines of JSON on stdin, ``{"gold", "answers", "tolerance"}``, and two arguments: seconds of CPU time a pair, bytes
of memory. Out: lines on stdout: ``ready`` once, ``gold`` as soon as a pair's reference is read (so that who waits knows
whose fault a timeout is), and a verdict: ``equal``, ``different``, ``unread gold``, ``unread answer`` or ``memory``.

Run by its path, as a process of its own, never imported by the package: a formula can be a bomb, and nothing inside a
process stops ``9^{9^{9^9}}``. The kernel does: SIGPROF ends the process when the CPU time of a pair is spent.

The comparison is math-verify's, with these differences, each because the other way passed something wrong:

- decimals are read as exact quotients, so nothing is rounded to six places, and a tolerance is relative;
- what it calls equal is compared once more at 50 digits, relative to its size (it calls 2^-70 and 2^-71 equal);
- an equation to zero does not answer "0" (it takes the right side of ``x+y=0``);
- letters are real, always, and capitals are letters of their own (it reads R - r as 0); i is the imaginary unit (it has
  two kinds of i, by the blank before it); angles in degrees are degrees inside sin, cos and their like;
- units are not stripped (it takes the t of ``5t`` for one), and no formula is looked for inside a text that is none.
"""

from __future__ import annotations

# sympy and math-verify carry no types.
# pyright: basic, reportMissingTypeStubs=false, reportUnknownMemberType=false, reportAttributeAccessIssue=false
# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
import json
import logging
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache

from latex2sympy2_extended.latex2sympy2 import ConversionConfig, NormalizationConfig, latex2sympy, normalize_latex
from math_verify import verify
from math_verify.grader import is_equation, take_last_relation
from math_verify.parser import get_last_eq
from sympy import (
    Basic,
    Expr,
    FiniteSet,
    I,
    Integral,
    Interval,
    MatrixBase,
    Mul,
    Product,
    Rational,
    Sum,
    Symbol,
    Tuple,
    UnevaluatedExpr,
    Union,
    nan,
    zoo,
)
from sympy.core.function import AppliedUndef

DIGITS = 50
SAME = Rational(1, 10**40)
ENOUGH_DIGITS = 10
"""As in ``numerals``: from how many significant digits on a decimal may stand for a number that it only begins."""

_FORM = NormalizationConfig(basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none")
_TRIGONOMETRY = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
_MEANING = ConversionConfig(lowercase_symbols=False)
_DECIMAL = re.compile(r"(\d*)\.(\d+)")


def read(text: str):
    """The formula that a text is; None where it is none."""
    exact = _DECIMAL.sub(lambda found: rf"\frac{{{int(found[1] + found[2])}}}{{{10 ** len(found[2])}}}", text)
    form = normalize_latex(exact, _FORM)
    for part in dict.fromkeys((form, get_last_eq(form))):  # of a chain that cannot be read, its last member
        try:
            formula = latex2sympy(
                part,
                is_real=True,
                convert_degrees=_TRIGONOMETRY.search(part) is not None,
                normalization_config=None,
                conversion_config=_MEANING,
            )
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001, S112 - a parser's and an algebra system's errors know no base class
            continue
        if isinstance(formula, Basic | MatrixBase) and not formula.has(nan, zoo):
            return _with_imaginary_unit(formula)
    return None


read_gold = lru_cache(maxsize=1024)(read)


def equal(gold, answer, tolerance: float | None = None) -> bool:
    """Whether two formulas mean the same; the tolerance is relative to the gold's numbers, None is exact."""
    if _is_equation_to_zero(answer) and not is_equation(gold):
        return False
    wanted, got = _numbers(gold), _numbers(answer)
    pairs = list(zip(wanted, got, strict=True)) if len(wanted) == len(got) else []
    if verify(gold, answer, float_rounding=DIGITS, allow_set_relation_comp=True, timeout_seconds=None):
        return all(_near(one, other) for one, other in pairs)
    return bool(pairs) and _kind(gold) == _kind(answer) and all(_stands_for(*pair, tolerance) for pair in pairs)


def _with_imaginary_unit(formula):
    """The letter i as the imaginary unit, where it is no index."""
    if isinstance(formula, FiniteSet | Tuple):
        parts = getattr(formula, "_unsorted_args", formula.args)  # math-verify looks at the order as it was written
        return type(formula)(*map(_with_imaginary_unit, parts))
    if isinstance(formula, Expr) and not formula.has(Sum, Product, Integral):
        return formula.xreplace({Symbol("i", real=True): I})
    return formula


def _is_equation_to_zero(formula) -> bool:
    """Whether its right side is 0, and its left side no name: no letter, product of letters or function."""
    if not is_equation(formula):
        return False
    last = take_last_relation(formula)
    named = isinstance(last.lhs, Symbol | AppliedUndef) or (
        isinstance(last.lhs, Mul) and all(isinstance(factor, Symbol) for factor in last.lhs.args)
    )
    return last.rhs == 0 and not named and bool(last.lhs.free_symbols)


def _kind(formula) -> str:
    for kind in (FiniteSet, Tuple, Interval, MatrixBase, Union):
        if isinstance(formula, kind):
            ends = (formula.left_open, formula.right_open) if kind is Interval else ""
            return f"{kind.__name__} {getattr(formula, 'shape', '')} {ends}"
    return "number"


def _numbers(formula) -> list:
    """The numbers that a list, a tuple, an interval or a matrix holds, or the number itself; none of anything else."""
    if formula.has(UnevaluatedExpr):  # a percent sign, which math-verify forgives
        return []
    if isinstance(formula, Interval):
        parts = [formula.start, formula.end]
    elif isinstance(formula, MatrixBase):
        parts = list(formula)
    elif isinstance(formula, FiniteSet | Tuple | Union):
        parts = list(formula.args)
    else:
        return [formula] if isinstance(formula, Expr) and formula.is_number else []
    numbers = [_numbers(part) for part in parts]
    if not all(numbers):
        return []
    flat = [number for part in numbers for number in part]
    return sorted(flat, key=_order) if isinstance(formula, FiniteSet | Union) else flat


def _order(number) -> tuple[float, float]:
    value = complex(number.evalf())
    return value.real, value.imag


def _near(wanted, got, tolerance: Rational | None = None) -> bool:
    """Whether two numbers agree: relative to the first one's size, or to all digits where no tolerance is given."""
    wanted, got = wanted.doit(), got.doit()
    if wanted == got:
        return True
    if tolerance is None and wanted.is_Rational and got.is_Rational:
        return False
    size = abs(wanted.evalf(DIGITS))
    return bool(size.is_finite and abs((wanted - got).evalf(DIGITS)) <= (tolerance or SAME) * size)


def _stands_for(wanted, got, tolerance: float | None) -> bool:
    """Whether one number is the other within the tolerance, or a long decimal that begins it."""
    if tolerance is not None and not wanted.is_Integer and _near(wanted, got, Rational(str(tolerance))):
        return True
    if _near(wanted, got):
        return True
    places = [_places(number) for number in (wanted, got)]
    if (places[0] is None) == (places[1] is None):
        return False
    unit = Rational(1, 10 ** next(place for place in places if place is not None))
    return bool(abs((wanted - got).evalf(DIGITS)) < unit)


def _places(number) -> int | None:
    """The decimal places of a number of at least ten significant digits; None of any other."""
    if not isinstance(number, Rational):
        return None
    places, scaled = 0, number
    while scaled.q != 1 and places < 100:
        places, scaled = places + 1, scaled * 10
    return places if places and scaled.q == 1 and len(str(abs(scaled.p))) >= ENOUGH_DIGITS else None


def judge(gold_text: str, answers: list[str], tolerance: float | None, said: Callable[[str], object] = str) -> str:
    """The verdict on an answer: the list of its items, or each of them by itself, has to be the gold."""
    gold = read_gold(gold_text)
    said("gold")
    if gold is None:
        return "unread gold"
    whole = read(", ".join(answers))
    if whole is not None and equal(gold, whole, tolerance):
        return "equal"
    if len(answers) > 1:
        items = [read(answer) for answer in answers]
        if all(item is not None and equal(gold, item, tolerance) for item in items):
            return "equal"
    return "different" if whole is not None else "unread answer"


def main() -> None:
    """Answer the lines of stdin until it ends."""
    cpu_s, memory = float(sys.argv[1]), int(sys.argv[2])
    import resource

    for limit, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)):
        with suppress(OSError, ValueError):  # not every system limits address space
            resource.setrlimit(limit, (most, most))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this process ends it
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    sys.set_int_max_str_digits(0)  # a number of 5,000 digits is no error, and the CPU time is limited
    replies = os.fdopen(os.dup(1), "w", buffering=1, encoding="ascii")
    os.dup2(2, 1)  # what a library prints is no reply

    def say(word: str) -> None:
        replies.write(f"{word}\n")

    say("ready")
    for line in sys.stdin:
        pair = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        try:
            verdict = judge(pair["gold"], pair["answers"], pair["tolerance"], say)
        except MemoryError:
            verdict = "memory"
        except RecursionError:
            verdict = "unread answer"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        say(verdict)


if __name__ == "__main__":
    main()
