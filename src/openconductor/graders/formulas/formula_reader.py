r"""Reads a LaTeX formula as a sympy expression, by recursive descent.

``parse`` takes one formula without relations, lists or sets (``math_worker`` takes those apart).

Letters are real; capitals and indices make letters of their own (``R`` and ``r``, ``E_{1}``). ``e``
and ``i`` are the constants; in a sum over ``i`` it is the index. Multiplication without a sign
binds tighter than a slash (``1/2x`` is 1/(2x)), unless a blank stands before it (``1/2 x``). The
argument of a function without brackets ends at a sign, a dot or the next function. Degrees are
degrees inside sin, cos and their like, and elsewhere a unit that is left out. A derivative of an
unknown (dy/dx, y') is a letter of its own.

Only math workers import this module: sympy evaluates while it reads, and a formula can be a bomb.
"""

from __future__ import annotations

# sympy carries no types.
# pyright: basic, reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false
import re
from typing import NamedTuple

import sympy

_FARTHEST = 6
"""Tokens that are looked at, the next one included."""
_TOKEN = re.compile(r"(\s*)(\d+(?:\.\d+)?|\.\d+|\\[A-Za-z]+|\\.|\S)")
_ANGLES = {
    name: getattr(sympy, name)
    for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth")
}
_FUNCTIONS = {
    **_ANGLES,
    **{f"arc{name}": getattr(sympy, f"a{name}") for name in _ANGLES},
    **{f"ar{name}": getattr(sympy, f"a{name}") for name in ("sinh", "cosh", "tanh")},
    "ln": sympy.log,
    "log": lambda x: sympy.log(x, 10),
    "lg": lambda x: sympy.log(x, 10),
    "lb": lambda x: sympy.log(x, 2),
    "exp": sympy.exp,
    "cis": lambda x: sympy.cos(x) + sympy.I * sympy.sin(x),
    "Re": sympy.re,
    "Im": sympy.im,
    "arg": sympy.arg,
    "sgn": sympy.sign,
    "Gamma": sympy.gamma,
}
_LETTERS = """alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau
upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega hbar ell
imath jmath aleph partial nabla ldots"""
_ACCENTS = {"vec", "hat", "bar", "overline", "tilde", "dot", "ddot", "overrightarrow", "widehat"}
_CONSTANTS = {"e": sympy.E, "i": sympy.I, r"\pi": sympy.pi, r"\infty": sympy.oo}
_CLOSING = {
    "(": ")", "[": "]", "{": "}", "|": "|", r"\{": r"\}", r"\lvert": r"\rvert",
    r"\lfloor": r"\rfloor", r"\lceil": r"\rceil",
}  # fmt: skip
_ENCLOSED = {
    "|": sympy.Abs, r"\lvert": sympy.Abs, r"\lfloor": sympy.floor, r"\lceil": sympy.ceiling
}  # fmt: skip
_TIMES = {"*", r"\cdot", r"\times"}
_DIVIDED = {"/", r"\div"}
_BIG = {r"\sum": sympy.Sum, r"\prod": sympy.Product}
_UNKNOWN_FUNCTIONS = set("fghFGH")
# The derivative of an unknown is a name; the operator d/dx stands before a formula.
_D = r"\s*(?:d|\\partial)\s*"
_ORDER = r"(?:\^\{(\d)\}\s*)?"
_DERIVATIVE = re.compile(
    rf"\\frac\s*\{{({_D}{_ORDER}[A-Za-z]\s*)\}}\s*\{{({_D}[A-Za-z]{_ORDER})\}}"
)
_OPERATOR = re.compile(rf"\\frac\s*\{{{_D}{_ORDER}\}}\s*\{{{_D}([A-Za-z]|\\[a-z]+)\s*{_ORDER}\}}")
_ENDS = {*_CLOSING.values(), "+", "-", "", "^", "_", "!", ",", "&", r"\\", r"\end", "=", ":", ";"}


class Unreadable(ValueError):
    """The text is no formula that this module knows."""


class _Token(NamedTuple):
    text: str
    spaced: bool


def parse(text: str):
    """Return the expression or matrix that a text writes.

    Raises:
        Unreadable: it writes none, or a value that does not exist (1/0).
    """
    text = _DERIVATIVE.sub(r"\\text{\1/\3}", text)
    reader = _Reader(_OPERATOR.sub(r"\\derivative{\2}{\1}", text))
    formula = reader.sum()
    if reader.peek():
        raise Unreadable(f"{reader.peek()!r} is left")
    if formula.has(sympy.nan, sympy.zoo):
        raise Unreadable("no value")
    return formula


def letter(name: str) -> sympy.Symbol:
    """Return the letter of a name."""
    return sympy.Symbol(name, real=True)


class _Reader:
    """Holds the tokens that are left."""

    def __init__(self, text: str) -> None:
        self._tokens = [_Token(word, bool(blank)) for blank, word in _TOKEN.findall(text)]
        self._tokens += [_Token("", spaced=False)] * _FARTHEST
        self._place = 0
        self._bars = 0
        self._in_angle = False
        self._differential = False
        self._bound: set[str] = set()

    def peek(self, ahead: int = 0) -> str:
        """Return a token that is left; "": none."""
        return self._tokens[self._place + ahead].text

    def _spaced(self) -> bool:
        return self._tokens[self._place].spaced

    def _take(self, *expected: str) -> str:
        token = self.peek()
        if not token or (expected and token not in expected):
            raise Unreadable(f"got {token!r}, expected {expected}")
        self._place += 1
        return token

    def _take_if(self, *wanted: str) -> bool:
        if self.peek() not in wanted:
            return False
        self._place += 1
        return True

    def sum(self):
        total = self._product()
        while self.peek() in ("+", "-"):
            negative = self._take() == "-"
            part = self._product()
            total += -part if negative else part
        return total

    def _product(self):
        value = self._signed()
        while True:
            if self._take_if(*_TIMES):
                value *= self._signed()
            elif self._take_if(*_DIVIDED):
                value /= self._divisor()
            elif self._continues():
                if self.peek()[0].isdigit() and self._follows_number():
                    raise Unreadable("two numbers side by side")
                value *= self._power()
            else:
                return value

    def _follows_number(self) -> bool:
        return self._tokens[self._place - 1].text[-1] in "0123456789}"

    def _signed(self):
        if self._take_if("-"):
            return -self._signed()
        if self._take_if("+"):
            return self._signed()
        return self._power()

    def _divisor(self):
        value = self._signed()
        while self._continues() and not self._spaced():
            value *= self._power()
        return value

    def _continues(self) -> bool:
        """Return True if the next token begins a factor."""
        word = self.peek()
        if word == "|":
            return self._bars == 0
        if word == "d" and self._differential:
            return False
        return word not in _ENDS and word not in _TIMES and word not in _DIVIDED

    def _power(self):
        base = self._atom()
        while True:
            if self._take_if("!"):
                base = sympy.factorial(base)
            elif self._take_if(r"\%"):
                base /= 100
            elif self.peek() == "^" and self.peek(1) == r"\circ":
                self._place += 2
                if self._in_angle:
                    base *= sympy.pi / 180
            elif self._take_if("^"):
                base = self._raise(base)
            else:
                return base

    def _raise(self, base):
        exponent = self._argument()
        if self._take_if("^"):  # 2^3^2, typed by hand
            exponent = self._raise(exponent)
        return base**exponent

    def _argument(self):
        """Read a group in braces, or one token."""
        word = self.peek()
        if word == "{":
            return self._group()
        if word.isdigit():  # one digit, as in \frac12
            self._take()
            if len(word) > 1:
                self._place -= 1
                self._tokens[self._place] = _Token(word[1:], spaced=False)
            return sympy.Integer(word[0])
        return self._atom()

    def _group(self):
        opening = self._take(*_CLOSING)
        bars, self._bars = self._bars, int(opening == "|")
        value = self.sum()
        self._take(_CLOSING[opening])
        self._bars = bars
        return _ENCLOSED.get(opening, lambda same: same)(value)

    def _atom(self):
        token = self.peek()
        if token in _CLOSING and token not in (")", "]"):
            return self._group()
        self._take()
        if token[0].isdigit() or token[0] == ".":
            return self._number(token)
        if token in _CONSTANTS and token not in self._bound and self.peek() != "_":
            return _CONSTANTS[token]
        command = token.removeprefix("\\")
        if token.startswith("\\") and command in _FUNCTIONS:
            return self._function(command)
        if token in _BIG:
            return self._big(_BIG[token])
        method = _COMMANDS.get(token)
        if method is not None:
            return method(self)
        if command in _ACCENTS or command == "text":
            return self._letter(f"{command} {self._name()}".removeprefix("text "))
        if command in _LETTERS.split() or (token.isalpha() and token.isascii()):
            return self._letter(command)
        raise Unreadable(f"got {token!r}")

    def _number(self, token: str):
        number = sympy.Rational(token)
        if self.peek() == r"\frac" and number.is_Integer and number > 0:
            place = self._place
            part = self._power()
            if part.is_Rational and 0 < part < 1:
                return number + part
            self._place = place
        return number

    def _name(self) -> str:
        """Read a group, or one token, as a name."""
        if not self._take_if("{"):
            return self._take().removeprefix("\\")
        words: list[str] = []
        depth = 1
        while depth:
            token = self._take()
            depth += {"{": 1, "}": -1}.get(token, 0)
            if token not in ("{", "}", r"\text"):
                words.append(token.removeprefix("\\"))
        return "".join(words)

    def _letter(self, name: str):
        if self._take_if("_"):
            name += f"_{self._name()}"
        called = name.partition("_")[0] in _UNKNOWN_FUNCTIONS
        while self._take_if("'"):
            name += "'"
            called = True
        behind = "".join(map(self.peek, range(6)))
        if called and behind == "^{-1}(":
            self._place += 5
            name += "^-1"
        if called and self.peek() == "(" and not self._spaced():
            return sympy.Function(name, real=True)(*self._arguments())
        return letter(name)

    def _arguments(self) -> list:
        """Read arguments in brackets."""
        closing = _CLOSING[self._take("(", "{", "[", r"\{")]
        values = [self.sum()]
        while self._take_if(","):
            values.append(self.sum())
        self._take(closing)
        return values

    def _function(self, name: str):
        base = self._argument_behind("_")
        power = self._argument_behind("^")
        inverse = power == -1 and f"arc{name}" in _FUNCTIONS
        in_angle, self._in_angle = self._in_angle, name in _ANGLES or name == "cis"
        argument = self._function_argument()
        self._in_angle = in_angle
        if inverse:
            return _FUNCTIONS[f"arc{name}"](argument)
        value = _FUNCTIONS[name](argument) if base is None else sympy.log(argument, base)
        return value if power is None else value**power

    def _argument_behind(self, mark: str):
        return self._argument() if self._take_if(mark) else None

    def _function_argument(self):
        if self.peek() in ("(", "[", "{"):
            return self._group()
        value = self._power() if self.peek() != "-" else self._signed()
        while self._continues() and not self._begins_function():
            value *= self._power()
        if self._take_if("/"):
            value /= self._divisor()
        return value

    def _begins_function(self) -> bool:
        token = self.peek()
        return token in ("(", "[") or token.removeprefix("\\") in _FUNCTIONS or token in _BIG

    def _fraction(self):
        numerator = self._argument()
        return numerator / self._argument()

    def _derivative(self):
        r"""Read ``\frac{d}{dx} x^2`` as 2x."""
        variable = self._name()
        times = int(self._name() or 1)
        return sympy.diff(self._product(), letter(variable), times)

    def _root(self):
        degree = self._group() if self.peek() == "[" else 2
        radicand = self._argument()
        if degree != 2 and radicand.is_negative and degree.is_odd:
            return -sympy.root(-radicand, degree)
        return sympy.root(radicand, degree)

    def _binomial(self):
        top = self._argument()
        return sympy.binomial(top, self._argument())

    def _index(self, *marks: str):
        """Read the letter below a sum or a limit, and its first value or its target."""
        self._take("_")
        self._take("{")
        name = self._take().removeprefix("\\")
        self._take(*marks)
        value = self.sum()
        self._take("}")
        return name, value

    def _big(self, operator):
        index, first = self._index("=")
        self._take("^")
        last = self._argument()
        self._bound.add(index)
        body = self._product()
        self._bound.discard(index)
        return operator(body, (letter(index), first, last)).doit()

    def _integral(self):
        low = self._argument_behind("_")
        high = self._argument_behind("^")
        outer, self._differential = self._differential, True
        body = sympy.Integer(1) if self.peek() == "d" else self.sum()
        self._take("d")
        self._differential = outer
        variable = self._letter(self._take().removeprefix("\\"))
        bounds = variable if low is None else (variable, low, high)
        return sympy.Integral(body, bounds).doit()

    def _limit(self):
        variable, target = self._index(r"\to", r"\rightarrow")
        return sympy.limit(self._product(), letter(variable), target)

    def _matrix(self):
        kind = self._name()
        if kind == "array" and self.peek() == "{":
            self._name()
        rows: list[list] = [[]]
        while not self._take_if(r"\end"):
            if self._take_if(r"\\"):
                rows.append([])
            elif not self._take_if("&", r"\hline"):
                rows[-1].append(self.sum())
        self._name()
        matrix = sympy.ImmutableMatrix([row for row in rows if row])
        return matrix.det() if kind == "vmatrix" else matrix


_COMMANDS = {
    r"\frac": _Reader._fraction,
    r"\derivative": _Reader._derivative,
    r"\sqrt": _Reader._root,
    r"\binom": _Reader._binomial,
    r"\int": _Reader._integral,
    r"\lim": _Reader._limit,
    r"\begin": _Reader._matrix,
}
