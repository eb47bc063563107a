r"""Mathematical text in one form: LaTeX, plain text and Unicode of one meaning become the same.

``normalise`` writes LaTeX that ``numerals`` and ``math_worker`` read. Each text is normalised by
itself, so a reference cannot pull an answer towards it. Lost braces are put back only if one
reading is left (``\beginpmatrix``, ``\frac3*sqrt(3)4``); ``\frac2707`` has three, and is left
alone.
"""

from __future__ import annotations

import re

from openconductor.graders.extraction import braced
from openconductor.graders.units import Unit, read_unit

_CHARACTERS = str.maketrans({
    "−": "-", "–": "-", "—": "-", "×": r"\times ", "÷": "/", "·": r"\cdot ", "⋅": r"\cdot ",
    "∙": r"\cdot ", "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ",
    "°": r"^\circ", "²": "^2", "³": "^3", "∅": r"\emptyset ", "∪": r"\cup ", "∩": r"\cap ",
    "∈": r"\in ", "±": r"\pm ", "…": r"\ldots ", "⁄": "/", "½": r"\frac{1}{2}",
    "⅓": r"\frac{1}{3}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}", "⅔": r"\frac{2}{3}",
    "ℝ": r"\mathbb{R}", "θ": r"\theta ", "√": r"\sqrt ", "’": "'", "\u00a0": " ", "\u2009": " ",
    "\u202f": " ",
})  # fmt: skip
_DELIMITED = re.compile(r"\$\$(.+)\$\$|\\\[(.+)\\\]|\$([^$]+)\$|\\\((.+)\\\)", re.DOTALL)
_BOLD = re.compile(r"(\*\*|__|`)(.+)\1", re.DOTALL)

_PERCENT = r"percent(?:age)?|pct"
# (pattern, replacement), applied in this order to the whole text.
_TABLE = (
    (r"^(?i:so|thus|then|hence|therefore)\b[\s,:]*(?=[-+.\d\\(])", ""),
    (r"\\(begin|end)\s*\{?([pbvBV]?matrix)\}?", r"\\\1{\2}"),
    (r"\\(?:left|right|[bB]igg?[lrm]?|mleft|mright)(?![a-zA-Z])\.?", ""),
    (r"\\(?:displaystyle|textstyle|limits)(?![a-zA-Z])", ""),
    (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
    (r"\\(?:text(?:bf|it|rm|normal)|math(?:rm|bf|it)|mbox|hbox)(?=\s*\{)", r"\\text"),
    (r"\\text\s*\{\s*([ei])\s*\}", r"\1"),
    (r"(?<!\\)\\!\s*", ""),
    (r"(?<=\d)\\[,;: ](?=\d{3}(?!\d))", ""),
    (r"\{\s*,\s*\}", ","),
    (r"\\q?quad(?![a-zA-Z])|(?<!\\)\\[,;: ]|~", " "),
    (
        r"\\text\s*\{[\s,;]*(?:and|or)?[\s,;]*\}|,?\s*(?<![a-zA-Z\\])(?:and|or)(?![a-zA-Z])\s*",
        ", ",
    ),
    (r"(?:,\s*){2,}", ", "),
    (
        rf"\s*(?:\\text\s*\{{\s*(?:{_PERCENT})\s*\}}|(?<![a-zA-Z\\])(?:{_PERCENT})\b)",
        r"\\%",
    ),
    (r"\s*(?<!\\)%", r"\\%"),
    (r"\\leq(?:slant)?(?![a-zA-Z])|<=", r"\\le "),
    (r"\\geq(?:slant)?(?![a-zA-Z])|>=", r"\\ge "),
    (r"\\neq(?![a-zA-Z])|!=", r"\\ne "),
    (r"\\lt(?![a-zA-Z])", "<"),
    (r"\\gt(?![a-zA-Z])", ">"),
    (r"\\varnothing(?![a-zA-Z])", r"\\emptyset"),
    (r"\\degrees?(?![a-zA-Z])|\^\s*\{\s*\\circ\s*\}|\^\s*\\circ(?![a-zA-Z])", r"^\\circ "),
    (r"(?<=\d)\s*[xX]\s*(?=10\s*\^)", r"\\times "),
    (r"\*\*", "^"),
    (r"(?<![\w.^{])(\d+)\s*\((\d+)\)", r"\1\\cdot (\2)"),
    (r"\\(pm|mp)\s*\*", r"\\\1 "),
    (r"\*", r"\\cdot "),
    (r"(?<![a-zA-Z\\])(?:infinity|inf|oo)(?![a-zA-Z])", r"\\infty "),
    (r"(?<![a-zA-Z\\])(pi|theta|alpha|beta|gamma|lambda|phi|omega)(?![a-zA-Z])", r"\\\1 "),
    (
        r"(?<![a-zA-Z\\])(arc(?:sin|cos|tan)|(?:sin|cos|tan)h?|cot|sec|csc|ln|log|exp)(?![a-zA-Z])",
        r"\\\1 ",
    ),
    (r"\\?\bsqrt\s*(\d+)", r"\\sqrt{\1}"),
    (r"\^\s*([+-]?\d+)", r"^{\1}"),
    (r"\^\s*(-[a-zA-Z])", r"^{\1}"),
)
_REWRITES = tuple((re.compile(pattern), replacement) for pattern, replacement in _TABLE)
_DOUBLED = re.compile(r"\\\\(?=[a-zA-Z{}\[\]()|,;:!%$])")
# A term begins with no operator, so only one numerator is left.
_LOST_BRACES = re.compile(r"\\frac\s*(\d*)\s*\\cdot\s*(\\sqrt\{[^{}]*\})\s*(\d+)(?![\d.])")
_ARGUMENT = re.compile(r"(\\?\bsqrt|\^)\s*\(")
_PARENTHESES_AS_BRACES = str.maketrans("(){}", "{}()")
_GROUPS = re.compile(r"[+-]?\d{1,3}(?: \d{3})+(?:\.\d+)?")
_DOLLAR = re.compile(r"\\?\$")
_MONEY = re.compile(r"[+-]?\s*\\?\$\s*(?=[\d.])")
_NAME = (
    r"(?:\\text\s*\{[^{}]*\}|(?<![a-zA-Z\\])(?:\\text|\\mbox)?[a-zA-Z]{2,})\s*(?:\^\s*\{?-?\d\}?)?"
)
_BEHIND = re.compile(
    rf"(?<=[\w}})\]])\s*(?:\^\\circ|{_NAME}(?:[\s/]*{_NAME}){{0,3}}(?:\s*/\s*[a-z])?)\s*$"
)
_ANGLE = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)[^,]*\^\\circ$")
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_PLAIN = re.compile(r"\([A-Z]\)|[A-Za-z]+(?:[ -][A-Za-z]+)*")
_WORDS = re.compile(r"[^\W\d_][\w\s'’.,;:-]*")


def normalise(text: str) -> str:
    r"""Return one form for all texts of one meaning.

    >>> normalise("$7pi$"), normalise("3*sqrt(13)."), normalise("10,\\!080")
    ('7\\pi', '3\\cdot \\sqrt{13}', '10,080')
    """
    text = _unwrap(text.translate(_CHARACTERS))
    if "matrix" not in text and "array" not in text:
        text = _DOUBLED.sub(r"\\", text)  # escaped once too often, as in JSON
    money = _MONEY.match(text)
    if money is None:
        text = _DOLLAR.sub("", text)
    else:
        text = money[0].replace("\\", "") + _DOLLAR.sub("", text[money.end() :])
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = _LOST_BRACES.sub(r"\\frac{\1\2}{\3}", _brace_arguments(text))
    text = re.sub(r"\s+", " ", text).strip(" ,;:").removesuffix(".")
    text = re.sub(r"^(?:=|\\approx|\\Rightarrow|\\implies)\s*", "", text)
    if _GROUPS.fullmatch(text):
        text = text.replace(" ", "")
    return re.sub(r" (?=$|[,)\]}])", "", text)


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
    marked = behind[0].strip().startswith(("\\text", "^"))
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
    return plain if len(plain) == 1 else " ".join(plain.casefold().split())


def same_text(gold: str, answer: str) -> bool:
    """Return True if two normalised texts differ at most in blanks and the marks of plain text."""
    squeezed = _squeeze(gold)
    return bool(squeezed) and squeezed == _squeeze(answer)


def _squeeze(text: str) -> str:
    return re.sub(r"(?<!\d) +| +(?!\d)", "", _TEXT.sub(r"\1", text))


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
    place = 0
    while True:
        opening = _ARGUMENT.search(text, place)
        if opening is None:
            return text
        place = opening.end()
        start = place - 1
        # Reading the parentheses as braces finds the matching one.
        inside = braced(text[start:].translate(_PARENTHESES_AS_BRACES), 0)
        if inside is None:
            continue
        end = start + len(inside) + 2
        head = "^" if opening[1] == "^" else r"\sqrt"
        text = f"{text[: opening.start()]}{head}{{{text[start + 1 : end - 1]}}}{text[end:]}"
        place = opening.start() + len(head)
