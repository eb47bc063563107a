r"""Mathematical text in one form: what means the same in LaTeX, plain text and Unicode is written the same.

In: an answer or a reference as it was written. Out: LaTeX that ``numerals`` and ``math_worker``
read.

Nothing here looks at the other side: a text is normalised by itself, so a reference cannot pull an
answer towards it. Braces that were lost on the way are put back only where one reading is left
(``\beginpmatrix``, ``\frac3*sqrt(3)4``); ``\frac2707`` has three, and is left alone.
"""

from __future__ import annotations

import re

from openconductor.graders.extraction import braced
from openconductor.graders.units import Unit, read_unit

_CHARACTERS = str.maketrans({
    "−": "-", "–": "-", "—": "-", "×": r"\times ", "÷": "/", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ",
    "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "°": r"^\circ", "²": "^2", "³": "^3",
    "∅": r"\emptyset ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "±": r"\pm ", "…": r"\ldots ", "⁄": "/",
    "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}", "⅔": r"\frac{2}{3}",
    "ℝ": r"\mathbb{R}", "θ": r"\theta ", "√": r"\sqrt ", "’": "'", "\u00a0": " ", "\u2009": " ", "\u202f": " ",
})  # fmt: skip
_DELIMITED = re.compile(r"\$\$(.+)\$\$|\\\[(.+)\\\]|\$([^$]+)\$|\\\((.+)\\\)", re.DOTALL)
_BOLD = re.compile(r"(\*\*|__|`)(.+)\1", re.DOTALL)

# (pattern, replacement), applied in this order to the whole text.
_REWRITES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
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
            r"\s*(?:\\text\s*\{\s*(?:percent(?:age)?|pct)\s*\}|(?<![a-zA-Z\\])(?:percent(?:age)?|pct)\b)",
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
)
_DOUBLED = re.compile(r"\\\\(?=[a-zA-Z{}\[\]()|,;:!%$])")
# A term begins with no operator, so only one numerator is left.
_LOST_BRACES = re.compile(r"\\frac\s*(\d*)\s*\\cdot\s*(\\sqrt\{[^{}]*\})\s*(\d+)(?![\d.])")
_ARGUMENT = re.compile(r"(\\?\bsqrt|\^)\s*\(")
_GROUPS = re.compile(r"[+-]?\d{1,3}(?: \d{3})+(?:\.\d+)?")
_MONEY = re.compile(r"[+-]?\s*\\?\$\s*(?=[\d.])")
_NAME = (
    r"(?:\\text\s*\{[^{}]*\}|(?<![a-zA-Z\\])(?:\\text|\\mbox)?[a-zA-Z]{2,})\s*(?:\^\s*\{?-?\d\}?)?"
)
_BEHIND = re.compile(
    rf"(?<=[\w}})\]])\s*(?:\^\\circ|{_NAME}(?:[\s/]*{_NAME}){{0,3}}(?:\s*/\s*[a-z])?)\s*$"
)
_ANGLE = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)[^,]*\^\\circ$")
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_WORDS = re.compile(r"[^\W\d_][\w\s'’.,;:-]*")


def normalise(text: str) -> str:
    r"""One form for what means the same.

    >>> normalise("$7pi$"), normalise("3*sqrt(13)."), normalise("10,\\!080")
    ('7\\pi', '3\\cdot \\sqrt{13}', '10,080')
    """
    text = _unwrapped(text.translate(_CHARACTERS))
    if "matrix" not in text and "array" not in text:
        text = _DOUBLED.sub(r"\\", text)  # escaped once too often, as in JSON
    money = _MONEY.match(text)
    text = (money[0].replace("\\", "") if money else "") + re.sub(
        r"\\?\$", "", text[money.end() if money else 0 :]
    )
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = _LOST_BRACES.sub(r"\\frac{\1\2}{\3}", _braces_for_parentheses(text))
    text = re.sub(r"\s+", " ", text).strip(" ,;:").removesuffix(".")
    text = re.sub(r"^(?:=|\\approx|\\Rightarrow|\\implies)\s*", "", text)
    if _GROUPS.fullmatch(text):
        text = text.replace(" ", "")
    return re.sub(r" (?=$|[,)\]}])", "", text)


def split_unit(text: str) -> tuple[str, Unit | None]:
    r"""A normalised text without the unit or the name behind it, and the unit, where it is a known one.

    >>> split_unit(r"\frac{\pi}{2}\text{ apples}"), split_unit("5t")[0], split_unit(r"\text{east}")[0]
    (('\\frac{\\pi}{2}', None), '5t', '\\text{east}')
    """
    behind = _BEHIND.search(text)
    if behind is None or _ANGLE.search(text) is not None:
        return text, None
    unit = read_unit(behind[0])
    marked = behind[0].strip().startswith(("\\text", "^"))
    return (text[: behind.start()].rstrip(), unit) if marked or unit is not None else (text, None)


def words_of(text: str) -> str | None:
    r"""The plain words of a normalised text that is no formula, in one case (a single letter keeps its own), else None.

    >>> words_of(r"\text{(C)}"), words_of(r"\text{Evelyn}"), words_of("x+1")
    ('C', 'evelyn', None)
    """
    plain = _TEXT.sub(lambda match: match[1], text)
    if "\\text" not in text and not re.fullmatch(r"\([A-Z]\)|[A-Za-z]+(?:[ -][A-Za-z]+)*", plain):
        return None
    plain = plain.strip(" .,;:()\"'")
    if _WORDS.fullmatch(plain) is None:
        return None
    return " ".join(plain.casefold().split()) if len(plain) > 1 else plain


def same_text(one: str, other: str) -> bool:
    """Whether two normalised texts are written the same, blanks and the marks of plain text aside."""
    squeezed = [
        re.sub(r"(?<!\d) +| +(?!\d)", "", _TEXT.sub(lambda match: match[1], text))
        for text in (one, other)
    ]
    return bool(squeezed[0]) and squeezed[0] == squeezed[1]


def _unwrapped(text: str) -> str:
    """Without the delimiters of math and the asterisks that hold the whole text."""
    while True:
        text = text.strip()
        match = _DELIMITED.fullmatch(text) or _BOLD.fullmatch(text)
        if match is None:
            return text
        text = next(group for group in reversed(match.groups()) if group is not None)


def _braces_for_parentheses(text: str) -> str:
    r"""``sqrt(x)`` as ``\sqrt{x}`` and ``^(x)`` as ``^{x}``, where the parenthesis closes."""
    place = 0
    while (opening := _ARGUMENT.search(text, place)) is not None:
        start = opening.end() - 1
        place = opening.end()
        # Reading the parentheses as braces finds the matching one.
        inside = braced(text[start:].translate(str.maketrans("(){}", "{}()")), 0)
        if inside is None:
            continue
        end = start + len(inside) + 2
        head = "^" if opening[1] == "^" else r"\sqrt"
        text = f"{text[: opening.start()]}{head}{{{text[start + 1 : end - 1]}}}{text[end:]}"
        place = opening.start() + len(head)
    return text
