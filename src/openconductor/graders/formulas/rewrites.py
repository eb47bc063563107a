r"""Tables of what is written in several ways: signs and patterns, each with its one form.

Sources: the commands are those of LaTeX and amsmath; ``\lor``, ``\bar`` on digits and the like
are from ISO 80000-2, which also has ``]a,b[`` and ``0.(3)``; the words and dresses are what replies
of models to MATH, GSM8K and Minerva hold.
"""

from __future__ import annotations

import re

FUNCTION = r"arc(?:sin|cos|tan|cot)|(?:sin|cos|tan)h?|cot|sec|csc|cis|ln|log|exp"
_PARTS = {
    "FUNCTION": FUNCTION,
    "GREEK": r"alpha|beta|gamma|theta|lambda|omega|infty|phi|pi",
    "PERCENT": r"percent(?:age)?|per cent|pct",
    "DOTTED": r"\\dot\s*\{?(\d)\}?",
    "ITEM": r"[^\[\](),;|]*[^\s\[\](),;|][^\[\](),;|]*",
}

# Signs, and the text that stands for each of them ("␣" is a blank).
_SIGNS = r"""
、 ,   。 .   ∶ :   ∣ |   ′’‘ '   −–— -   × \times␣   ÷⁄ /   ·⋅∙ \cdot␣   ∞ \infty␣   ≤⩽ \le␣
≥⩾ \ge␣   ≠ \ne␣   ≈ \approx␣   ° ^\circ   ∅Ø \emptyset␣   ∪ \cup␣   ∩ \cap␣   ∖ \setminus␣
∈ \in␣   ± \pm␣   ∓ \mp␣   … \ldots␣   ½ \frac{1}{2}   ⅓ \frac{1}{3}   ¼ \frac{1}{4}
¾ \frac{3}{4}   ⅔ \frac{2}{3}   ℝ \mathbb{R}   ℤ \mathbb{Z}   ℕ \mathbb{N}   ℚ \mathbb{Q}
√ \sqrt␣   ¢ ␣cents   ∨ \lor␣   ∧ \land␣   ⌊ \lfloor␣   ⌋ \rfloor␣   ⌈ \lceil␣   ⌉ \rceil␣
α \alpha␣   β \beta␣   γ \gamma␣   δ \delta␣   θ \theta␣   λ \lambda␣   π \pi␣   ρ \rho␣
σ \sigma␣   φ \phi␣   ω \omega␣   Δ \Delta␣
"""
# Pattern ⟶ replacement, applied in this order to the whole text.
_REWRITES = r"""
# Dress: colours, sizes, fonts, delimiters that only look larger.
\\(?:textcolor|colorbox)\s*\{[^{}]*\}|\\color\s*\{[^{}]*\}|\\[hv]?phantom\{[^{}]*\} ⟶
\\(?:tiny|small|normalsize|large|Large|LARGE|huge|bf|rm|it|sf)(?![a-zA-Z]) ⟶
\\(?:left|right|middle|[bB]igg?[lrm]?|mleft|mright)(?![a-zA-Z])\.? ⟶
\\(?:displaystyle|textstyle|limits)(?![a-zA-Z]) ⟶
\\(?:mathbf|boldsymbol|bm|vec|hat|overrightarrow)\s*\{\s*\\?([ijk])(?:math)?\s*\} ⟶ \\vec{\1}
\\mathbf\s*\{?\s*([RZNQ])\b\s*\}?|\\(?:Bbb|mathbb)\s*\{?\s*([RZNQC])\b\s*\}? ⟶ \\mathbb{\1\2}
\\mathbf\s*(?=\{+[^{}]*[-+=*^\\(\d]) ⟶
\\math(?:rm|it|sf)\s*(?=\{\s*(?:\\[dt]?frac|\\sqrt|[-\d(])) ⟶
\\(?:text(?:bf|it|rm|sf|tt|normal)|emph|math(?:rm|bf|it|sf))(?=\s*\{) ⟶ \\text
\\(?:operatorname\*?|mbox|hbox)(?=\s*\{) ⟶ \\text
\\(?:boldsymbol|bm|pmb|underline)(?=\s*\{) ⟶
\\text\s*\{([^{}]*)\}\\text\s*\{ ⟶ \\text{\1
\\text\s*\{\s*(FUNCTION)\s*\} ⟶ \\\1␣
\\text\s*\{\s*\{?\\?([$€£]|\d[\d.,/]*|[ei])\s*\} ⟶ \1
(?<![\w}\s])\\text\s*\{\s*([a-z])\s*\}(?=[\^_]) ⟶ \1
^\\text\s*\{(?![^{}]*\bnot\b)[^{}]*\b(?:is|are|be|equals|point|vertex):?\s*\}\s*:? ⟶
^\\text\s*\{[a-zA-Z ]+\}\s*:\s*(?=[\d(\\]) ⟶
^(?:the\s+)?point\s+(?=\() ⟶
# Words and signs of other languages.
^(?![^$]*[负不非])[\u4e00-\u9fff]+\s*:?\s*(?=[-\d\\(]) ⟶
(?<=[\w)}$])\s*(?![十百千万亿倍分度米克升])[\u4e00-\u9fff]+[.。]?$ ⟶
\\text\s*\{\s*ou\s*\}|(?<![a-zA-Z\\])ou(?![a-zA-Z])|或者? ⟶ ␣or␣
\\text\s*\{\s*et\s*\}|(?<![a-zA-Z\\])et(?![a-zA-Z])|[和与] ⟶ ␣and␣
^(?i:so|thus|then|hence|therefore)\b[\s,:]*(?=[-+.\d\\(]) ⟶
# LaTeX in one spelling.
\\(begin|end)\s*\{?([pbvBV]?|small)matrix\}? ⟶ \\\1{\2matrix}
\\(begin|end)\s*\{smallmatrix\} ⟶ \\\1{matrix}
\\[dtc]frac(?![a-zA-Z]) ⟶ \\frac
\\frac\s*(\d)(?=\s*[\d{\\]) ⟶ \\frac{\1}
\\frac\s*(\{[^{}]*\})\s*(\d) ⟶ \\frac\1{\2}
\{([^{}]+)\\over(?![a-z])([^{}]+)\} ⟶ \\frac{\1}{\2}
\\[dt]binom(?![a-zA-Z]) ⟶ \\binom
\\[lr]vert(?![a-zA-Z]) ⟶ |
\\lbrace(?![a-zA-Z]) ⟶ \\{
\\rbrace(?![a-zA-Z]) ⟶ \\}
\\bigcup(?![a-zA-Z])|(?<=[)\]}])\s*(?:\\text\{\s*U\s*\}|U)\s*(?=[(\[\\]) ⟶ \\cup␣
\\(?:bigcap|wedge)(?![a-zA-Z]) ⟶ \\cap␣
\\vee(?![a-zA-Z]) ⟶ \\lor␣
\\(?:backslash|smallsetminus)(?![a-zA-Z]) ⟶ \\setminus␣
(\\mathbb\{R\})\s*-\s*(?=\\\{) ⟶ \1\\setminus␣
\\var(epsilon|phi|theta)(?![a-zA-Z]) ⟶ \\\1
\\(?:l?dots|cdots)(?![a-zA-Z]) ⟶ \\ldots
\^\s*\{?\s*\\prime\s*\\prime\s*\}? ⟶ ''
\^\s*\{?\s*\\prime\s*\}? ⟶ '
\\colon(?![a-zA-Z])|\{:\} ⟶ :
^[a-z]\s*\\mapsto\s* ⟶
(?<![a-zA-Z\\])d([a-z])\s*/\s*d([a-z])(?![a-zA-Z]) ⟶ \\frac{d\1}{d\2}
^(\d+)\s*(?:\\text\s*\{\s*to\s*\}|to)\s*(\d+)$ ⟶ \1:\2
^(\d+)\s*(?:\\text\s*\{\s*(?:in|out of)\s*\}|in|out\s+of)\s*(\d+)$ ⟶ \\frac{\1}{\2}
\\text\s*\{([^{}]*\bintegers?\b[^{}]*|\s*,?\s*(?:where|for|with|if)\s*)\} ⟶ ␣\1␣
,?\s*(?:(?:where|for|with|if)\s+)?\b([a-z])\s+(?:is|be)\s+(?:an?|any)\s+integer\s*$ ⟶ ,␣\1\\in␣Z
,?\s*(?:where|for|with)\s+(?:(?:any|all|an|every|each|some)\s+)?integers?\s+([a-z])\s*$ ⟶ ,␣\1\\in␣Z
\\in\s*([RZNQ])(?![a-zA-Z]) ⟶ \\in␣\\mathbb{\1}
^<([^<>=]+,[^<>=]+)>$ ⟶ \\langle \1\\rangle
\](ITEM[,;]ITEM)\[ ⟶ (\1)
\](ITEM[,;]ITEM)\] ⟶ (\1]
\[(ITEM[,;]ITEM)\[ ⟶ [\1)
(?<!\\)\\!\s* ⟶
(?<=\d)\\[,;: ](?=\d{3}(?!\d)) ⟶
(?<=\d)'(?=\d{3}(?!\d)) ⟶
\{\s*,\s*\} ⟶ ,
(?<=\S)\s*\\q?quad(?![a-zA-Z])\s*(?=[-+\d\\a-z(]) ⟶ ,␣
\\q?quad(?![a-zA-Z])|(?<!\\)\\[,;: ]|~ ⟶ ␣
(?<=\d)\s*&\s*(?=\d+$) ⟶ ,␣
# Repeating decimals.
(?<=[\d.])DOTTED(\d*)DOTTED ⟶ \\overline{\1\2\3}
(?<=[\d.])DOTTED ⟶ \\overline{\1}
(?<=[\d.])\\bar\s*(?:\{(\d+)\}|(\d)) ⟶ \\overline{\1\2}
(?<![\d.])(\d+\.\d*)\((\d+)\) ⟶ \1\\overline{\2}
(?<![\d.])(\d+\.\d*?)(\d+?)\2+\s*(?:\.\.\.|\\ldots) ⟶ \1\\overline{\2}
\.\.\. ⟶ \\ldots␣
# Words for signs.
(?i)^(?:\\text\s*\{)?\s*no\s+(?:real\s+)?solutions?\s*\}?$ ⟶ \\emptyset␣
(?i)^(?:\\text\s*\{)?\s*(?:the\s+)?empty\s+set\s*\}?$ ⟶ \\emptyset␣
(?i)^(?:\\text\s*\{)?\s*(?:all|the)?\s*reals?(?:\s+numbers?)?\s*\}?$ ⟶ \\mathbb{R}
(?i)^(?:\\text\s*\{)?\s*all\s+real\s+numbers\s+except\s*\}?\s*(?=-?[\d/.]+$) ⟶ x\\ne␣
(?i)^(?:\\text\s*\{)?\s*(?:does\s+not\s+exist|undefined)\s*\}?$ ⟶ \\text{DNE}
(?i)(?:negative|minus)\s+infinity ⟶ -\\infty␣
\\\{\s*\\?\s*\\\}|\\varnothing(?![a-zA-Z])|^\\phi$|^\\O$|^\{\}$ ⟶ \\emptyset␣
(?:\\text\s*\{\s*or\s*\}|(?<![a-zA-Z\\])or(?![a-zA-Z]))(?=[^,]{0,80}(?:[<>=]|\\[lgn]e)) ⟶ \\lor␣
(?:\\text\s*\{\s*and\s*\}|(?<![a-zA-Z\\])and(?![a-zA-Z]))(?=[^,]{0,80}(?:[<>=]|\\[lgn]e)) ⟶ \\land␣
\\text\s*\{[\s,;]*(?:and|or)?[\s,;]*\}|,?\s*(?<![a-zA-Z\\])(?:and|or)(?![a-zA-Z])\s* ⟶ ,␣
(?:,\s*){2,} ⟶ ,␣
\s*(?:\\text\s*\{\s*(?:PERCENT)\s*\}|(?<![a-zA-Z\\])(?:PERCENT)\b) ⟶ \\%
\s*\\text\s*\{\s*\\?%\s*\}|\s*(?<!\\)% ⟶ \\%
\\leq(?:slant|q)?(?![a-zA-Z])|<= ⟶ \\le␣
\\geq(?:slant|q)?(?![a-zA-Z])|>= ⟶ \\ge␣
\\neq(?![a-zA-Z])|!= ⟶ \\ne␣
\\lt(?![a-zA-Z]) ⟶ <
\\gt(?![a-zA-Z]) ⟶ >
\\degrees?(?![a-zA-Z])|\^\s*\{\s*\\circ\s*\}|\^\s*\\circ(?![a-zA-Z])|(?<=\d)\^\{?o\}? ⟶ ^\\circ␣
(?<=\d)\s*[xX]\s*(?=10\s*\^) ⟶ \\times␣
\*\* ⟶ ^
\+\s*/\s*- ⟶ \\pm␣
(?<![\w.^{])(\d+)\s*\((\d+)\) ⟶ \1\\cdot (\2)
\\(pm|mp)\s*\* ⟶ \\\1␣
(?<!\^)(?<!\^\{)\* ⟶ \\cdot␣
(?<![a-zA-Z\\])(?:infinity|inf|oo)(?![a-zA-Z]) ⟶ \\infty␣
(?<![a-zA-Z\\])(GREEK)(?![a-zA-Z]) ⟶ \\\1␣
(?<![a-zA-Z\\])(FUNCTION)(?![a-zA-Z]) ⟶ \\\1␣
# Binomials in their dresses.
\{([^{}]+)\\choose(?![a-z])([^{}]+)\} ⟶ \\binom{\1}{\2}
(?:\{\})?[_^]\s*\{?(\w{1,9})\}?\s*C_\s*\{?(\w+)\}? ⟶ \\binom{\1}{\2}
\bC_\s*\{?(\d+)\}?\s*\^\s*\{?(\d+)\}? ⟶ \\binom{\1}{\2}
\bC\(\s*(\w+)\s*,\s*(\w+)\s*\) ⟶ \\binom{\1}{\2}
\\?\bsqrt\s*(\d+) ⟶ \\sqrt{\1}
\^\s*([+-]?\d+) ⟶ ^{\1}
\^\s*(-[a-zA-Z]) ⟶ ^{\1}
"""


def read_signs() -> dict[int, str]:
    """Return the table of signs, with those of full width."""
    signs = {0xFF01 + place: chr(0x21 + place) for place in range(94)}
    signs |= {ord(blank): " " for blank in "\u00a0\u2009\u202f\u3000"}
    words = _SIGNS.split()
    for characters, text in zip(words[::2], words[1::2], strict=True):
        signs |= {ord(character): text.replace("␣", " ") for character in characters}
    return signs


def read_rewrites() -> list[tuple[re.Pattern[str], str]]:
    """Return the patterns and their replacements, in order."""
    rewrites: list[tuple[re.Pattern[str], str]] = []
    for line in _REWRITES.strip().splitlines():
        if line.startswith("#"):
            continue
        pattern, _, replacement = line.partition(" ⟶")
        for name, part in _PARTS.items():
            pattern = pattern.replace(name, part)
        text = replacement.removeprefix(" ").replace("␣", " ")
        rewrites.append((re.compile(pattern), text))
    return rewrites
