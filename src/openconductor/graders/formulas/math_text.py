r"""Mathematical text in one form: LaTeX, plain text and Unicode of one meaning become the same.

``normalise`` writes LaTeX that ``numerals`` and ``math_worker`` read. Each text is normalised by
itself, so a reference cannot pull an answer towards it. Lost braces are put back only if one
reading is left (``\beginpmatrix``, ``\frac3*sqrt(3)4``); ``\frac2707`` has three, and is left
alone.
"""

from __future__ import annotations

import re
from functools import lru_cache

from openconductor.graders.extraction import braced
from openconductor.graders.formulas.rewrites import read_rewrites, read_signs
from openconductor.graders.units import Unit, read_unit

_SIGNS = read_signs()
_REWRITES = read_rewrites()
_SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ"
_RAISED = re.compile(f"[{_SUPERSCRIPTS}]+")
_LOWERED = str.maketrans(_SUPERSCRIPTS, "0123456789+-n")
_MARKED_DIGITS = re.compile("((?:\\d[\u0305\u0307])+)")
_DELIMITED = re.compile(r"\$\$(.+)\$\$|\\\[(.+)\\\]|\$([^$]+)\$|\\\((.+)\\\)", re.DOTALL)
_BOLD = re.compile(r"(\*\*|__|`|\")(.+)\1", re.DOTALL)

_DOUBLED = re.compile(r"\\\\(?=[a-zA-Z{}\[\]()|,;:!%$])")
# A term begins with no operator, so only one numerator is left.
_LOST_BRACES = re.compile(r"\\frac\s*(\d*)\s*\\cdot\s*(\\sqrt\{[^{}]*\})\s*(\d+)(?![\d.])")
_ARGUMENT = re.compile(r"(\\?\bsqrt|\^)\s*\(")
_PARENTHESIS = re.compile(r"\\.|[()]", re.DOTALL)  # an escaped one is no parenthesis
_BLANKS = re.compile(r"[ \t\n]{2,}")
_GROUPS = re.compile(r"[+-]?\d{1,3}(?: \d{3})+(?:\.\d+)?")
_DOLLAR = re.compile(r"\\?\$")
_MONEY = re.compile(r"[+-]?\s*(?:US)?\s*\\?\$\s*(?=[\d.])")
_NAME = (
    r"(?:\\text\s*\{[^{}]*\}|(?<![a-zA-Z\\])(?:\\text|\\mbox)?[a-zA-Z]{2,})\s*(?:\^\s*\{?-?\d\}?)?"
)
_BEHIND = re.compile(
    rf"(?<=[\w}})\]])\s*(?:\^\\circ|{_NAME}(?:[\s/]*{_NAME}){{0,3}}(?:\s*/\s*[a-z])?)\s*$"
)
# Two letters that are no product of two; mg and kT may be one.
_SHORT_UNITS = "cm mm km kg nm ft in lb hr mi yd mL ml"
_ANGLE = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc|cis)[^,]*\^\\circ$")
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_PLAIN = re.compile(r"\([A-Z]\)|[A-Z][.)]|[A-Za-z]|[A-Za-z]{2,}(?:[ -]\w+)*")
_ARTICLE = re.compile(r"^(?:(?:it\s+is|on)\s+)?(?:(?:an?|the)\s+(?=\w{2}))?")
_WORDS = re.compile(r"[^\W\d_][\w\s'’.,;:-]*")


@lru_cache(maxsize=1024)  # a reference is graded against many answers
def normalise(text: str) -> str:
    r"""Return one form for all texts of one meaning.

    >>> normalise("$7pi$"), normalise("3*sqrt(13)."), normalise("10,\\!080")
    ('7\\pi', '3\\cdot \\sqrt{13}', '10,080')
    """
    text = _RAISED.sub(lambda power: f"^{{{power[0].translate(_LOWERED)}}}", text)
    text = _MARKED_DIGITS.sub(_overline, text)
    text = _unwrap(text.translate(_SIGNS))
    if "matrix" not in text and "array" not in text:
        text = _DOUBLED.sub(r"\\", text)  # escaped once too often, as in JSON
    money = _MONEY.match(text)
    if money is None:
        text = _DOLLAR.sub("", text)
    else:
        text = money[0].replace("\\", "") + _DOLLAR.sub("", text[money.end() :])
    for pattern, replacement in _REWRITES:
        # The patterns' time is quadratic in a run of blanks.
        text = pattern.sub(replacement, _BLANKS.sub(" ", text))
    text = _LOST_BRACES.sub(r"\\frac{\1\2}{\3}", _brace_arguments(text))
    text = re.sub(r"\s+", " ", text).strip(" ,;:").removesuffix(".")
    text = re.sub(r"^(?:=|\\approx|\\Rightarrow|\\implies)\s*", "", text)
    if _GROUPS.fullmatch(text):
        text = text.replace(" ", "")
    text = re.sub(r" (?=$|[,)\]}])", "", text)
    inner = braced(text, 0)
    if inner is None or len(inner) + 2 < len(text) or "|" in inner or ":" in inner:
        return text
    return inner.strip()


def split_unit(text: str) -> tuple[str, Unit | None]:
    r"""Split a normalised text from the unit or the name behind it; None: the unit is unknown.

    >>> split_unit(r"\frac{\pi}{2}\text{ apples}")
    ('\\frac{\\pi}{2}', None)
    >>> split_unit("5t")[0], split_unit(r"\text{east}")[0]
    ('5t', '\\text{east}')
    """
    behind = _BEHIND.search(text)
    if behind is None or _ANGLE.search(text) is not None:
        return text, None
    unit = read_unit(behind[0])
    name = behind[0].strip()
    marked = name.startswith(("\\text", "^"))
    if not marked and len(name) == 2 and name not in _SHORT_UNITS.split():
        return text, None
    if unit is None and not marked:
        return text, None
    return text[: behind.start()].rstrip(), unit


def words_of(text: str) -> str | None:
    r"""Return the plain words of a normalised text; None if it is a formula.

    Words are in lower case; a single letter keeps its own.

    >>> words_of(r"\text{(C)}"), words_of(r"\text{Evelyn}"), words_of("x+1")
    ('C', 'evelyn', None)
    """
    plain = _TEXT.sub(r"\1", text)
    if "\\text" not in text and not _PLAIN.fullmatch(plain):
        return None
    plain = plain.strip(" .,;:()\"'")
    if _WORDS.fullmatch(plain) is None:
        return None
    if len(plain) == 1:
        return plain
    return _ARTICLE.sub("", " ".join(plain.casefold().split()))


def same_text(gold: str, answer: str) -> bool:
    """Return True if two normalised texts differ at most in blanks and the marks of plain text."""
    squeezed = _squeeze(gold)
    return bool(squeezed) and squeezed == _squeeze(answer)


def _squeeze(text: str) -> str:
    return re.sub(r"(?<!\d) +| +(?!\d)", "", _TEXT.sub(r"\1", text))


def _overline(digits: re.Match[str]) -> str:
    """Write digits below a bar or dots as LaTeX."""
    plain = re.sub(r"\D", "", digits[0])
    return rf"\overline{{{plain}}}"


def _unwrap(text: str) -> str:
    """Return the text without the math delimiters and asterisks that hold all of it."""
    while True:
        text = text.strip()
        match = _DELIMITED.fullmatch(text) or _BOLD.fullmatch(text)
        if match is None:
            return text
        text = match[match.lastindex or 0]


def _brace_arguments(text: str) -> str:
    r"""Write ``sqrt(x)`` as ``\sqrt{x}`` and ``^(x)`` as ``^{x}``, if the parenthesis closes."""
    opened: list[int] = []
    closing: dict[int, int] = {}
    for parenthesis in _PARENTHESIS.finditer(text):
        if parenthesis[0] == "(":
            opened.append(parenthesis.start())
        elif parenthesis[0] == ")" and opened:
            closing[opened.pop()] = parenthesis.start()
    written = list(text)
    for opening in _ARGUMENT.finditer(text):
        start = opening.end() - 1
        if start in closing:
            head = "^" if opening[1] == "^" else r"\sqrt"
            written[opening.start() : start + 1] = [f"{head}{{", *[""] * (start - opening.start())]
            written[closing[start]] = "}"
    return "".join(written)
