r"""The program of a math worker: reads pairs of formulas and says whether they mean the same. Only here is sympy.

In: messages of JSON over a connection, ``{"gold", "answers", "tolerance", "cpu_s"}``; as arguments
the connection's file descriptor and the bytes of memory. Out: ``ready`` once, ``gold`` as soon as a
pair's reference is read (so that the caller knows whose fault a timeout is), and a verdict:
``equal``, ``different``, ``unread gold``, ``unread answer`` or ``memory``.

Run by its path, as a process of its own, never imported by the package: a formula can be a bomb,
and nothing inside a process stops ``9^{9^{9^9}}``. The kernel does: SIGPROF ends the process when
the CPU time of a pair is spent.

Lists, sets, tuples, intervals and unions are read here and compared item by item, brackets
included: a list and a set have no order, and an item of theirs counts as a whole. What they hold is
math-verify's, with these differences, each because the other way accepted something wrong:

- decimals are read as exact quotients, and numbers are compared at 50 digits, relative to their size;
- formulas have to agree at a point first (it takes 1e-20x and 3e-20x for the same);
- an equation to zero does not answer "0" (it takes the right side of ``x+y=0``), and equations without a solution are
  not all the same;
- a derivative of an unknown is an unknown of its own (it reads dy/dx as 0, and y' as y);
- letters are real, always, and capitals are letters of their own (it reads R - r as 0); i is the imaginary unit (it has
  two kinds of i, by the blank before it); angles in degrees are degrees inside sin, cos and their like;
- units are not stripped (it takes the t of ``5t`` for one), and no formula is looked for inside a text that is none.
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
"""As in ``numerals``: from how many significant digits on a decimal may stand for a number that it only begins."""

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


@dataclass(frozen=True, slots=True)
class Group:
    """Several formulas: a ``list`` without brackets, a ``set``, a ``union``, or "()", "[)" and their like."""

    kind: str
    items: tuple
    name: str = ""


def read(text: str):
    """The formula or the Group that a text is; None where it is neither."""
    text = text.strip()
    for mark in (";", ","):
        if len(pieces := _pieces(text, mark)) > 1:
            return _group("list", pieces)
    named = _NAMED.match(text)
    if (
        named is not None
        and isinstance(value := read(text[named.end() :]), Group)
        and value.kind != "list"
    ):
        return replace(value, name="".join(named[1].split()))
    if len(pieces := _pieces(text, r"\cup")) > 1:
        return _group("union", pieces)
    brackets, inner = _enclosed(text)
    if brackets == "{}":
        return read(inner)
    if brackets == r"\{\}":
        return _group("set", _items(inner))
    if brackets and len(items := _items(inner)) > 1:
        return _group("()" if brackets == r"\langle\rangle" or len(items) > 2 else brackets, items)
    if _SIGNS.search(text):
        signs = {"pm": "+-", "mp": "-+"}
        return _group(
            "list", [_SIGNS.sub(lambda sign, n=n: signs[sign[1]][n], text) for n in (0, 1)]
        )
    return _formula(text)


read_gold = lru_cache(maxsize=1024)(read)


def _outside(text: str) -> list[re.Match[str]]:
    """The marks of a text that are in no brackets, closing ones included."""
    marks, depth = [], 0
    for found in _MARK.finditer(text):
        depth += (found[0] in _OPENING) - (found[0] in _CLOSING)
        marks += [found] if depth <= 0 else []
    return [] if depth else marks


def _pieces(text: str, mark: str) -> list[str]:
    """A text, parted at a mark that is in no brackets; the commas of thousands part nothing."""
    numbers = [found.span() for found in _THOUSANDS.finditer(text)] if mark == "," else []
    pieces, start = [], 0
    for found in _outside(text):
        if found[0] == mark and not any(first < found.start() < last for first, last in numbers):
            pieces.append(text[start : found.start()])
            start = found.end()
    return [*pieces, text[start:]]


def _items(text: str) -> list[str]:
    """The items between two brackets, where ``100,200`` are two, unless blanks show that its comma parts thousands."""
    if len(pieces := _pieces(text, ";")) > 1:
        return pieces
    return _pieces(text if ", " in text else text.replace(",", " , "), ",") if text.strip() else []


def _enclosed(text: str) -> tuple[str, str]:
    """The brackets that enclose a whole text, and what they hold; "" and the text where none do."""
    opening, outside = _MARK.match(text), _outside(text)
    if (
        opening is None
        or opening[0] not in _OPENING - {r"\begin"}
        or len(outside) != 1
        or outside[0].end() < len(text)
    ):
        return "", text
    return opening[0] + outside[0][0], text[opening.end() : outside[0].start()]


def _group(kind: str, texts: list[str]) -> Group | None:
    """A Group of what texts say; a list in a list without brackets of its own is part of it."""
    items = []
    for text in texts:
        item = read(text)
        if item is None:
            return None
        spliced = (
            kind in ("list", "set")
            and isinstance(item, Group)
            and item.kind == "list"
            and _SIGNS.search(text)
        )
        items += item.items if spliced else [item]
    return Group(kind, tuple(items))


def _formula(text: str):
    """The formula that a text is; None where it is none."""
    text = _PRIMES.sub(
        lambda found: f"{found[1]}_{{{'p' * len(re.findall(_PRIME, found[2]))}rime}}", text
    )
    if "(" not in text:
        text = _THOUSANDS.sub(lambda found: found[0].replace(",", ""), text)
    exact = _DECIMAL.sub(
        lambda found: rf"\frac{{{int(found[1] + found[2])}}}{{{10 ** len(found[2])}}}", text
    )
    form = normalize_latex(exact, _FORM)
    for part in dict.fromkeys(
        (form, get_last_eq(form))
    ):  # of a chain that cannot be read, its last member
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
        if isinstance(formula, sympy.Basic | sympy.MatrixBase) and not formula.has(
            sympy.nan, sympy.zoo
        ):
            return _with_own_letters(formula)
    return None


def _with_own_letters(formula):
    """The letter i as the imaginary unit, where it is no index, and derivatives of unknowns as unknowns."""
    if isinstance(formula, sympy.Basic) and formula.has(sympy.Derivative):
        formula = formula.replace(
            lambda part: (
                isinstance(part, sympy.Derivative)
                and part.expr.free_symbols.isdisjoint(part.variables)
            ),
            lambda part: (
                sympy.Symbol(str(part), real=True) if part.expr.free_symbols else part.doit()
            ),
        )
    if isinstance(formula, sympy.Expr) and not formula.has(
        sympy.Sum, sympy.Product, sympy.Integral
    ):
        return formula.xreplace({sympy.Symbol("i", real=True): sympy.I})
    return formula


def same(gold, answer, tolerance: float | None = None) -> bool:
    """Whether two formulas or Groups mean the same; the tolerance is relative to the gold's numbers, None is exact."""
    groups = isinstance(gold, Group), isinstance(answer, Group)
    if groups == (False, False):
        return _same_formula(gold, answer, tolerance)
    if groups == (True, True):
        if gold.name and answer.name and gold.name != answer.name:
            return False
        if _same_items(gold, answer, tolerance):
            return True
    elif len(items := (gold if groups[0] else answer).items) == 1:
        return same(items[0], answer, tolerance) if groups[0] else same(gold, items[0], tolerance)
    sets = _as_set(gold), _as_set(answer)
    return None not in sets and (
        sets[0] == sets[1] or sympy.simplify(sets[0]) == sympy.simplify(sets[1])
    )


def _same_items(gold: Group, answer: Group, tolerance: float | None) -> bool:
    kinds = gold.kind, answer.kind
    if kinds == ("union", "union") or {"list", "set"}.issuperset(kinds):
        return all(
            one in answer.items or any(same(one, other, tolerance) for other in answer.items)
            for one in gold.items
        ) and all(
            one in gold.items or any(same(other, one, tolerance) for other in gold.items)
            for one in answer.items
        )
    # A tuple may lack its brackets, and names may stand for its places ("x=1, y=2").
    bare = kinds == ("()", "list") or (
        kinds == ("list", "()") and all(map(is_assignment_relation, gold.items))
    )
    if len(gold.items) != len(answer.items) or not (bare or gold.kind == answer.kind):
        return False
    return all(same(*pair, tolerance) for pair in zip(gold.items, answer.items, strict=True))


def _is_inequality(item) -> bool:
    return is_relation(item) and not is_equation(item)


def _as_set(node) -> sympy.Set | None:
    """The set that an interval, a union, or one or several relations describe; None of anything else."""
    try:
        if not isinstance(node, Group):
            shape = unwrap_fcs(node).as_set() if _is_inequality(node) else node
            return shape if isinstance(shape, sympy.Set) else None
        if node.kind == "set":
            return sympy.FiniteSet(*map(sympy.simplify, node.items))
        if node.kind == "union" or (node.kind == "list" and all(map(_is_inequality, node.items))):
            parts = [_as_set(item) for item in node.items]
            return None if None in parts else sympy.Union(*parts)
        start, end = map(sympy.simplify, node.items)
        shape = sympy.Interval(start, end, node.kind[0] == "(", node.kind[1] == ")")
        brackets = ("(" if shape.left_open else "[") + (
            ")" if shape.right_open else "]"
        )  # infinity belongs to none
        return shape if start < end and node.kind == brackets else None
    except (ValueError, TypeError, AttributeError, NotImplementedError):
        return None


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
    if (
        str(gold) == str(answer) == "E" and gold != answer
    ):  # a capital, and the base of the natural logarithm
        return False
    if equations:
        return _same_equation(gold, answer)
    if (
        isinstance(gold, sympy.Expr)
        and isinstance(answer, sympy.Expr)
        and not _same_at_a_point(gold, answer)
    ):
        return False
    return _verified(gold, answer)


def _verified(gold, answer) -> bool:
    return verify(
        gold, answer, float_rounding=DIGITS, allow_set_relation_comp=True, timeout_seconds=None
    )


def _same_equation(gold, answer) -> bool:
    """Whether one is the other times a number, or both have the same solutions, and have any."""
    if not all(isinstance(side, sympy.Expr) for side in (*gold.args, *answer.args)):
        return _verified(gold, answer)
    wanted, got = gold.lhs - gold.rhs, answer.lhs - answer.rhs
    if wanted.free_symbols != got.free_symbols or got == 0:
        return False
    ratio = sympy.simplify(wanted / got)
    if ratio.is_number and ratio.is_nonzero:
        return True
    return _verified(gold, answer) and bool(sympy.solve(gold, gold.free_symbols))


def _same_at_a_point(gold, answer) -> bool:
    """Whether two formulas have one value where each letter is some number, as far as they have any there."""
    if gold.has(sympy.UnevaluatedExpr) or answer.has(sympy.UnevaluatedExpr):
        return True  # a percent sign, which math-verify forgives
    letters = sorted(gold.free_symbols | answer.free_symbols, key=str)
    point = {
        letter: sympy.Rational(17 + 2 * place, 11 + place) for place, letter in enumerate(letters)
    }
    values = gold.subs(point), answer.subs(point)
    return not all(map(_is_number, values)) or values[0].has(sympy.nan, sympy.zoo) or _near(*values)


def _is_equation_to_zero(formula) -> bool:
    """Whether its right side is 0, and its left side no name: no letter, product of letters or function."""
    last = take_last_relation(formula)
    named = isinstance(last.lhs, sympy.Symbol | sympy.core.function.AppliedUndef) or (
        isinstance(last.lhs, sympy.Mul)
        and all(isinstance(factor, sympy.Symbol) for factor in last.lhs.args)
    )
    return last.rhs == 0 and not named and bool(last.lhs.free_symbols)


def _is_number(formula) -> bool:
    return (
        isinstance(formula, sympy.Expr)
        and bool(formula.is_number)
        and not formula.has(sympy.UnevaluatedExpr)
    )


def _near(wanted, got, tolerance: sympy.Rational | None = None) -> bool:
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
    near = (
        tolerance is not None
        and not wanted.is_Integer
        and _near(wanted, got, sympy.Rational(str(tolerance)))
    )
    if near or _near(wanted, got):
        return True
    places, others = _places(wanted.doit()), _places(got.doit())
    if (places is None) == (others is None):
        return False
    return bool(abs((wanted - got).evalf(DIGITS)) < sympy.Rational(1, 10 ** (places or others)))


def _places(number) -> int | None:
    """The decimal places of a number of at least ten significant digits; None of any other."""
    if not isinstance(number, sympy.Rational) or number.q == 1:
        return None
    places = next((places for places in range(1, 100) if 10**places % number.q == 0), 0)
    return (
        places
        if places and len(str(abs(number.p) * 10**places // number.q)) >= ENOUGH_DIGITS
        else None
    )


def judge(
    gold_text: str, answers: list[str], tolerance: float | None, said: Callable[[str], object] = str
) -> str:
    """The verdict on an answer: the list of its items, or each of them by itself, has to be the gold."""
    gold = read_gold(gold_text)
    said("gold")
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
    pipe, memory = Connection(int(sys.argv[1])), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, ValueError):  # not every system limits address space
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this process ends it
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    sys.set_int_max_str_digits(
        0
    )  # a number of 5,000 digits is not an error, and the CPU time is limited

    def say(word: str) -> None:
        pipe.send_bytes(word.encode())

    # The first formulas cost a hundred times what later ones do, which is not an answer's fault.
    for warm in (
        r"\frac{1}{2}x+\sqrt{2}",
        r"(1,\pi]\cup\{3\}",
        r"x=\begin{pmatrix}1\\2\end{pmatrix}",
        "2<x<3",
    ):
        judge(warm, [warm + "+1", warm.replace("2", "3")], None)
    say("ready")
    with suppress(EOFError):
        while True:
            pair = json.loads(pipe.recv_bytes())
            signal.setitimer(signal.ITIMER_PROF, pair["cpu_s"])
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
