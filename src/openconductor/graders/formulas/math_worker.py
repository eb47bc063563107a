r"""The program of a math worker: reads pairs of formulas and says whether they mean the same.

Only here is sympy. The arguments are a connection's file descriptor and the bytes of memory.
Messages are JSON, ``{"gold", "answers", "tolerance", "cpu_s"}``. The replies are ``ready`` once,
``gold`` as soon as a pair's reference is read (so that the caller knows whose fault a timeout is),
and a verdict: ``equal``, ``different``, ``unread gold``, ``unread answer`` or ``memory``.

Run by its path, as a process of its own, never imported by the package: a formula can be a bomb,
and nothing inside a process stops ``9^{9^{9^9}}``. The kernel does: SIGPROF ends the process when
the CPU time of a pair is spent.

Lists, sets, tuples, intervals and unions are read here and compared item by item, brackets
included: a list and a set have no order, and an item of theirs counts as a whole. Their items are
compared by math-verify, with these differences, each because the other way accepted something
wrong:

- decimals are read as exact quotients, and numbers are compared at 50 digits, relative to their
  size;
- formulas have to agree at a point first (it takes 1e-20x and 3e-20x for the same);
- an equation to zero does not answer "0" (it takes the right side of ``x+y=0``), and equations
  without a solution are not all the same;
- a derivative of an unknown is an unknown of its own (it reads dy/dx as 0, and y' as y);
- letters are real, always, and capitals are letters of their own (it reads R - r as 0); i is the
  imaginary unit (it has two kinds of i, by the blank before it); angles in degrees are degrees
  inside sin, cos and their like;
- units are not stripped (it takes the t of ``5t`` for one), and no formula is looked for inside a
  text that is none.
"""

from __future__ import annotations

# sympy and math-verify carry no types.
# pyright: basic, reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false
import json
import logging
import re
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing.connection import Connection

import sympy
from latex2sympy2_extended.latex2sympy2 import (
    ConversionConfig,
    NormalizationConfig,
    latex2sympy,
    normalize_latex,
)
from math_verify import verify
from math_verify.grader import (
    is_assignment_relation,
    is_equation,
    is_relation,
    take_last_relation,
    unwrap_fcs,
)
from math_verify.parser import get_last_eq

DIGITS = 50
SAME = sympy.Rational(1, 10**40)
ENOUGH_DIGITS = 10
"""Significant digits of a decimal that may stand for a number, as in ``numerals``."""

_FORM = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none"
)
_TRIGONOMETRY = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
_MEANING = ConversionConfig(lowercase_symbols=False)
_DECIMAL = re.compile(r"(\d*)\.(\d+)")
_PRIMES = re.compile(r"(?<![A-Za-z\\])([A-Za-z])((?:\s*')+|\s*\^\s*\{?\s*(?:\\prime\s*)+\}?)")
_PRIME = "'|prime"
_MARK = re.compile(r"\\(?:begin|end|[lr]angle|cup|[{}\\])(?![A-Za-z])|\\[A-Za-z]+|[(){}\[\],;]")
_OPENING = {"(", "[", "{", r"\{", r"\langle", r"\begin"}
_CLOSING = {")", "]", "}", r"\}", r"\rangle", r"\end"}
_THOUSANDS = re.compile(r"(?<![\d.])[1-9]\d{0,2}(?:,\d{3})+(?!\d)")
_NAMED = re.compile(
    r"([A-Za-z](?:_\{?\w+\}?)?|\([A-Za-z](?:\s*,\s*[A-Za-z])*\))\s*(?:=|\\in(?![a-z]))\s*(?=\S)"
)
_SIGNS = re.compile(r"\\(pm|mp)(?![A-Za-z])")
_WARM_UP = (
    r"\frac{1}{2}x+\sqrt{2}",
    r"(1,\pi]\cup\{3\}",
    r"x=\begin{pmatrix}1\\2\end{pmatrix}",
    "2<x<3",
)


@dataclass(frozen=True, slots=True)
class Group:
    """Several formulas; the kind is ``list`` (no brackets), ``set``, ``union``, "()", "[)" ..."""

    kind: str
    items: tuple
    name: str = ""


def read(text: str):
    """Read a formula or a Group; None if the text is neither."""
    text = text.strip()
    for mark in (";", ","):
        pieces = _split(text, mark)
        if len(pieces) > 1:
            return _read_group("list", pieces)
    named = _NAMED.match(text)
    if named is not None:
        value = read(text[named.end() :])
        if isinstance(value, Group) and value.kind != "list":
            return replace(value, name="".join(named[1].split()))
    pieces = _split(text, r"\cup")
    if len(pieces) > 1:
        return _read_group("union", pieces)
    brackets, inner = _split_brackets(text)
    if brackets == "{}":
        return read(inner)
    if brackets == r"\{\}":
        return _read_group("set", _split_items(inner))
    if brackets:
        items = _split_items(inner)
        if len(items) > 2 or (len(items) == 2 and brackets == r"\langle\rangle"):
            return _read_group("()", items)
        if len(items) == 2:
            return _read_group(brackets, items)
    if _SIGNS.search(text):
        return _read_group("list", [_with_sign(text, "+-"), _with_sign(text, "-+")])
    return _read_formula(text)


read_gold = lru_cache(maxsize=1024)(read)


def _with_sign(text: str, signs: str) -> str:
    r"""Replace ``\pm`` by the first sign, and ``\mp`` by the second."""
    return _SIGNS.sub(lambda sign: signs[0] if sign[1] == "pm" else signs[1], text)


def _outer_marks(text: str) -> list[re.Match[str]]:
    """Return the marks of a text that are in no brackets, closing ones included."""
    marks = []
    depth = 0
    for mark in _MARK.finditer(text):
        if mark[0] in _OPENING:
            depth += 1
        elif mark[0] in _CLOSING:
            depth -= 1
        if depth <= 0:
            marks.append(mark)
    return [] if depth else marks


def _split(text: str, mark: str) -> list[str]:
    """Split a text at a mark outside of brackets; the commas of thousands do not count."""
    numbers = []
    if mark == ",":
        numbers = [number.span() for number in _THOUSANDS.finditer(text)]
    pieces = []
    start = 0
    for match in _outer_marks(text):
        place = match.start()
        if match[0] == mark and not any(first < place < last for first, last in numbers):
            pieces.append(text[start:place])
            start = match.end()
    return [*pieces, text[start:]]


def _split_items(text: str) -> list[str]:
    """Split the text between two brackets into items.

    ``100,200`` are two, unless blanks elsewhere show that its comma parts thousands.
    """
    pieces = _split(text, ";")
    if len(pieces) > 1:
        return pieces
    if not text.strip():
        return []
    return _split(text if ", " in text else text.replace(",", " , "), ",")


def _split_brackets(text: str) -> tuple[str, str]:
    """Return the brackets that enclose a whole text, and the text inside; "" without brackets."""
    opening = _MARK.match(text)
    outer = _outer_marks(text)
    if opening is None or opening[0] not in _OPENING - {r"\begin"}:
        return "", text
    if len(outer) != 1 or outer[0].end() < len(text):
        return "", text
    closing = outer[0]
    return opening[0] + closing[0], text[opening.end() : closing.start()]


def _read_group(kind: str, texts: list[str]) -> Group | None:
    """Read texts as a Group; the two values of a plus-minus sign join the list around it."""
    items = []
    for text in texts:
        item = read(text)
        if item is None:
            return None
        is_list = isinstance(item, Group) and item.kind == "list"
        if is_list and kind in ("list", "set") and _SIGNS.search(text):
            items += item.items
        else:
            items.append(item)
    return Group(kind, tuple(items))


def _read_formula(text: str):
    """Read a formula; None if the text is not one."""
    text = _PRIMES.sub(_name_derivative, text)
    if "(" not in text:
        text = _THOUSANDS.sub(lambda number: number[0].replace(",", ""), text)
    form = normalize_latex(_DECIMAL.sub(_exact_quotient, text), _FORM)
    # Of a chain that cannot be read, its last member.
    for part in dict.fromkeys((form, get_last_eq(form))):
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
        except Exception:  # noqa: BLE001, S112 - their errors have no base class
            continue
        if not isinstance(formula, sympy.Basic | sympy.MatrixBase):
            continue
        if not formula.has(sympy.nan, sympy.zoo):
            return _with_own_letters(formula)
    return None


def _name_derivative(function: re.Match[str]) -> str:
    primes = len(re.findall(_PRIME, function[2]))
    return f"{function[1]}_{{{'p' * primes}rime}}"


def _exact_quotient(decimal: re.Match[str]) -> str:
    return rf"\frac{{{int(decimal[1] + decimal[2])}}}{{{10 ** len(decimal[2])}}}"


def _with_own_letters(formula):
    """Turn the letter i into the imaginary unit, if it is no index; derivatives into unknowns."""
    if isinstance(formula, sympy.Basic) and formula.has(sympy.Derivative):
        formula = formula.replace(_is_of_unknown, _as_unknown)
    if not isinstance(formula, sympy.Expr):
        return formula
    if formula.has(sympy.Sum, sympy.Product, sympy.Integral):
        return formula
    return formula.xreplace({sympy.Symbol("i", real=True): sympy.I})


def _is_of_unknown(part) -> bool:
    if not isinstance(part, sympy.Derivative):
        return False
    return part.expr.free_symbols.isdisjoint(part.variables)


def _as_unknown(derivative):
    if not derivative.expr.free_symbols:
        return derivative.doit()
    return sympy.Symbol(str(derivative), real=True)


def same(gold, answer, tolerance: float | None = None) -> bool:
    """Return True if two formulas or Groups mean the same.

    The tolerance is relative to the gold's numbers; None: exact.
    """
    if not isinstance(gold, Group) and not isinstance(answer, Group):
        return _same_formula(gold, answer, tolerance)
    if isinstance(gold, Group) and isinstance(answer, Group):
        if gold.name and answer.name and gold.name != answer.name:
            return False
        if _same_items(gold, answer, tolerance):
            return True
    elif isinstance(gold, Group) and len(gold.items) == 1:
        return same(gold.items[0], answer, tolerance)
    elif isinstance(answer, Group) and len(answer.items) == 1:
        return same(gold, answer.items[0], tolerance)
    gold_set = _as_set(gold)
    answer_set = _as_set(answer)
    if gold_set is None or answer_set is None:
        return False
    return gold_set == answer_set or sympy.simplify(gold_set) == sympy.simplify(answer_set)


def _same_items(gold: Group, answer: Group, tolerance: float | None) -> bool:
    kinds = gold.kind, answer.kind
    if kinds == ("union", "union") or {"list", "set"}.issuperset(kinds):
        return _same_unordered(gold, answer, tolerance)
    if len(gold.items) != len(answer.items):
        return False
    if kinds == ("list", "()"):
        # Names may stand for the places of a tuple ("x=1, y=2").
        comparable = all(map(is_assignment_relation, gold.items))
    else:
        comparable = gold.kind == answer.kind or kinds == ("()", "list")
    if not comparable:
        return False
    pairs = zip(gold.items, answer.items, strict=True)
    return all(same(wanted, got, tolerance) for wanted, got in pairs)


def _same_unordered(gold: Group, answer: Group, tolerance: float | None) -> bool:
    """Return True if each item of one is the same as some item of the other."""
    missing = [item for item in gold.items if item not in answer.items]
    for wanted in missing:
        if not any(same(wanted, got, tolerance) for got in answer.items):
            return False
    extra = [item for item in answer.items if item not in gold.items]
    for got in extra:
        if not any(same(wanted, got, tolerance) for wanted in gold.items):
            return False
    return True


def _is_inequality(item) -> bool:
    return is_relation(item) and not is_equation(item)


def _as_set(node) -> sympy.Set | None:
    """Return the set of an interval, a union or relations; None of anything else."""
    try:
        if isinstance(node, Group):
            return _group_as_set(node)
        shape = unwrap_fcs(node).as_set() if _is_inequality(node) else node
    except (ValueError, TypeError, AttributeError, NotImplementedError):
        return None
    return shape if isinstance(shape, sympy.Set) else None


def _group_as_set(group: Group) -> sympy.Set | None:
    """Return the set of a Group; None, or the errors of sympy, if it is none."""
    if group.kind == "set":
        return sympy.FiniteSet(*map(sympy.simplify, group.items))
    inequalities = group.kind == "list" and all(map(_is_inequality, group.items))
    if group.kind == "union" or inequalities:
        parts = [_as_set(item) for item in group.items]
        return None if None in parts else sympy.Union(*parts)
    start, end = map(sympy.simplify, group.items)
    shape = sympy.Interval(start, end, group.kind[0] == "(", group.kind[1] == ")")
    # sympy opens the brackets at infinity, which belongs to no interval.
    left = "(" if shape.left_open else "["
    right = ")" if shape.right_open else "]"
    return shape if start < end and group.kind == left + right else None


def _same_formula(gold, answer, tolerance: float | None) -> bool:
    if is_equation(answer) and not is_equation(gold):
        if _is_equation_to_zero(answer):
            return False
        answer = take_last_relation(answer).rhs
    elif is_assignment_relation(gold) and not is_equation(answer):
        gold = take_last_relation(gold).rhs
    equations = isinstance(gold, sympy.Eq) and isinstance(answer, sympy.Eq)
    if equations and gold.lhs == answer.lhs and isinstance(gold.lhs, sympy.Symbol):
        return _same_formula(gold.rhs, answer.rhs, tolerance)
    if isinstance(gold, sympy.MatrixBase) and isinstance(answer, sympy.MatrixBase):
        pairs = zip(gold, answer, strict=False)
        return gold.shape == answer.shape and all(_same_formula(*pair, tolerance) for pair in pairs)
    if _is_number(gold) and _is_number(answer):
        return _stands_for(gold, answer, tolerance)
    # A capital, and the base of the natural logarithm.
    if str(gold) == str(answer) == "E" and gold != answer:
        return False
    if equations:
        return _same_equation(gold, answer)
    expressions = isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr)
    if expressions and not _same_at_a_point(gold, answer):
        return False
    return _verify(gold, answer)


def _verify(gold, answer) -> bool:
    return verify(
        gold, answer, float_rounding=DIGITS, allow_set_relation_comp=True, timeout_seconds=None
    )


def _same_equation(gold, answer) -> bool:
    """Return True if one is a multiple of the other, or both have the same solutions, if any."""
    if not all(isinstance(side, sympy.Expr) for side in (*gold.args, *answer.args)):
        return _verify(gold, answer)
    wanted = gold.lhs - gold.rhs
    got = answer.lhs - answer.rhs
    if wanted.free_symbols != got.free_symbols or got == 0:
        return False
    ratio = sympy.simplify(wanted / got)
    if ratio.is_number and ratio.is_nonzero:
        return True
    return _verify(gold, answer) and bool(sympy.solve(gold, gold.free_symbols))


def _same_at_a_point(gold, answer) -> bool:
    """Return True if two formulas have one value where each letter is some number.

    Formulas without a value there count as the same.
    """
    if gold.has(sympy.UnevaluatedExpr) or answer.has(sympy.UnevaluatedExpr):
        return True  # a percent sign, which math-verify forgives
    letters = sorted(gold.free_symbols | answer.free_symbols, key=str)
    point = {}
    for place, letter in enumerate(letters):
        point[letter] = sympy.Rational(17 + 2 * place, 11 + place)
    wanted = gold.subs(point)
    got = answer.subs(point)
    if not _is_number(wanted) or not _is_number(got) or wanted.has(sympy.nan, sympy.zoo):
        return True
    return _near(wanted, got)


def _is_equation_to_zero(formula) -> bool:
    """Return True if its right side is 0, and its left side is no name.

    Names are a letter, a product of letters and a function.
    """
    last = take_last_relation(formula)
    left = last.lhs
    if last.rhs != 0:
        return False
    factors = left.args if isinstance(left, sympy.Mul) else [left]
    if all(isinstance(factor, sympy.Symbol) for factor in factors):
        return False
    return bool(left.free_symbols) and not isinstance(left, sympy.core.function.AppliedUndef)


def _is_number(formula) -> bool:
    if not isinstance(formula, sympy.Expr) or not formula.is_number:
        return False
    return not formula.has(sympy.UnevaluatedExpr)


def _near(wanted, got, tolerance: sympy.Rational | None = None) -> bool:
    """Return True if two numbers agree within the tolerance, relative to the first one's size.

    Without a tolerance quotients must be equal, and other numbers agree to all digits.
    """
    wanted = wanted.doit()
    got = got.doit()
    if wanted == got:
        return True
    if tolerance is None and wanted.is_Rational and got.is_Rational:
        return False
    size = abs(wanted.evalf(DIGITS))
    return bool(size.is_finite and abs((wanted - got).evalf(DIGITS)) <= (tolerance or SAME) * size)


def _stands_for(wanted, got, tolerance: float | None) -> bool:
    """Return True if two numbers agree, or one is a long decimal that begins the other."""
    if _near(wanted, got):
        return True
    inexact = tolerance is not None and not wanted.is_Integer
    if inexact and _near(wanted, got, sympy.Rational(str(tolerance))):
        return True
    places = _decimal_places(wanted.doit())
    other_places = _decimal_places(got.doit())
    if (places is None) == (other_places is None):
        return False
    last_place = sympy.Rational(1, 10 ** (places or other_places))
    return bool(abs((wanted - got).evalf(DIGITS)) < last_place)


def _decimal_places(number) -> int | None:
    """Return the decimal places of a number of ten significant digits or more, else None."""
    if not isinstance(number, sympy.Rational) or number.q == 1:
        return None
    for places in range(1, 100):
        if 10**places % number.q == 0:
            digits = str(abs(number.p) * 10**places // number.q)
            return places if len(digits) >= ENOUGH_DIGITS else None
    return None


def judge(
    gold_text: str,
    answers: list[str],
    tolerance: float | None,
    report: Callable[[str], object] = str,
) -> str:
    """Return the verdict on an answer: the list of its items, or each of them, must be the gold."""
    gold = read_gold(gold_text)
    report("gold")
    if gold is None:
        return "unread gold"
    whole = read(", ".join(answers))
    if whole is not None and same(gold, whole, tolerance):
        return "equal"
    if len(answers) > 1:
        items = [read(answer) for answer in answers]
        if all(item is not None and same(gold, item, tolerance) for item in items):
            return "equal"
    return "different" if whole is not None else "unread answer"


def main() -> None:
    """Answer messages until the other end closes."""
    pipe = Connection(int(sys.argv[1]))
    memory = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, ValueError):  # not every system limits address space
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    # A number of 5,000 digits is no error, because the CPU time is limited.
    sys.set_int_max_str_digits(0)

    def report(word: str) -> None:
        pipe.send_bytes(word.encode())

    # The first formulas cost a hundred times what later ones do; no answer should pay for that.
    for text in _WARM_UP:
        judge(text, [text + "+1", text.replace("2", "3")], None)
    report("ready")
    with suppress(EOFError):
        while True:
            pair = json.loads(pipe.recv_bytes())
            signal.setitimer(signal.ITIMER_PROF, pair["cpu_s"])
            try:
                verdict = judge(pair["gold"], pair["answers"], pair["tolerance"], report)
            except MemoryError:
                verdict = "memory"
            except RecursionError:
                verdict = "unread answer"
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            report(verdict)


if __name__ == "__main__":
    main()
