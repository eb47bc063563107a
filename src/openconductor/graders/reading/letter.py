r"""Finds the letter of the choice that a reply answers.

What follows where another question begins is cut. In the rest, the first of these that is there
decides:

1. the last statement (``Answer: B``, ``the answer is (B)``, ``\boxed{B}``),
2. the last option that is called the right one,
3. a reply that is only a letter, or one choice with its letter,
4. the only letter, in the dress of a choice, in the last paragraph.

"If ..., the answer would be D" states nothing. A statement of two letters decides that there is
none.
"""

from __future__ import annotations

import re

LAST_CHARACTERS = 20_000
"""How far from its end a reply is searched for the letter that it states."""
LONGEST = 200_000
"""How far from its end a reply is searched for the beginning of another question."""

# Another speaker's turn, or another question: by its name, or as choices with an answer.
_CHOICES = (
    r"\(?A[.):][^\n]{1,400}\n\s{0,8}\(?B[.):][^\n]{1,400}\n"
    r"(?:\s{0,8}\(?[C-J][.):][^\n]{1,400}\n){0,8}+\s{0,8}[*_]{0,2}answer[*_]{0,2}:"
)
_NEXT = re.compile(
    r"<(?i:\|[a-z_]{3,20}\||/s|eos(?:_token)?|(?:start|end)_of_turn)>|\[/?(?i:inst)\]"
    r"|\n[#*> \t-]{0,8}(?=[AEHINPQUaehinpqu(])(?i:"  # most lines have none of these letters
    r"(?:user|human|instruction|input)[* \t]{0,4}:"
    r"|(?:(?:next|new)\s)?(?:question|problem|exercise)[ \t]{0,3}#?\d{0,4}[*_ \t]{0,4}"
    r"(?::|\.(?=\s)|(?=\n))"
    rf"|Q\d{{0,4}}[*_]{{0,2}}[:.][ \t]|(?={_CHOICES}))"
)
LONGEST_PARAGRAPH = 600
_INTRODUCTION = 60
"""Characters before a question that a reply repeats before it answers."""

# A reply states its answer behind these; _letters_after reads it. A search for the keyword alone is
# far faster.
_KEYWORD = re.compile(r"[Aa]nswer|ANSWER|\\boxed")
_STATED = re.compile(
    r"\banswer\b(?:\s+(?:choice|option))?[*_\s]*"
    r"(?:[:=]|\b(?:is|would be|must be|should be)\b[*_\s]*:?)"
    r"|\banswer\s[^.:\n]{1,60}?\s(?:is|would be)\b:?|\\boxed(?=\s*\{)",
    re.IGNORECASE,
)
_CALLED_RIGHT = re.compile(
    r"\b(?:correct|right|best|closest)\s+(?:option|choice|one)\b[^.\n(]{0,60}?\b(?:is|would be)\b"
    r"|\b(?:choose|pick|select)\b",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"\b(?:if|were|unless|assuming|suppose|supposing|otherwise|without)\b|^\W*had\b", re.IGNORECASE
)
_CONDITION_BEHIND = re.compile(r"\b(?:if|unless|were|had)\b", re.IGNORECASE)
_CONTRAST = re.compile(
    r"\W*(?:however|but|yet|though|although|even|only)?[\s,]*(?:if|unless|assuming|suppose)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?](?=\s)|\n")
_OPENED = re.compile(
    r"(?:[\s*_`\"'$({}\[]|\\[(\[]|\\(?:text|mathrm|mathbf|textbf|textrm)(?=\s*\{)"
    r"|\\boxed(?=\s*\{)"
    r"|(?i:therefore|thus|clearly|option|choice|letter|the answer is)\b[ :,]*)*"
)
_CONTINUES = re.compile(r"['’]?[A-Za-z0-9]|-[A-Za-z]")
_CLOSED = re.compile(r"\s*(?:[)\]}.,;:!*_`\"'$–—]|-\s|\\[)\]]|\n|$)")
# Behind "A" and "I" it shows that they are letters, not an article and not a person: "A (3 of 4)".
_EXPLAINED = re.compile(r"\s{0,3}\(|\s+(?:because|since|due|given|based|which)\b")
_OTHER = r"[\s*_)}\]$]*(?:or|and|/|,|&)\s*[*_({\[$]*"
_ALONE = re.compile(
    r"[*_`$({\[\\]*(?:[A-Za-z][*_`$)}\]\\]*[.):]?|[A-Z][*_`$)}\]\\]*[.):]\s?[^\n]*)"
)
# A choice repeated with its letter, inside a sentence and up to its end: "… by issuing B.
# Accounting Standards".
_QUOTED = (
    r"[a-z,:] +(?<!part )(?<!figure )(?<!table )(?<!section )(?<!point )(?<!vitamin )"
    r"(?<!and )(?<!or )"
    r"\(?([{}])[.):] +(?=[A-Z0-9])"
)
_TO_THE_END = r"[^\n.!?]{1,200}[.!]?\s*$"
# A choice in its dress: behind a verb that equates, or named as a choice.
_EQUATED = re.compile(
    r"\b(?:is|are|be)\b:?\s{0,3}(?:option\s|choice\s)?[*_\"“(]{0,4}"
    r"([A-J])(?:\)|[.:](?=\s|[*_\"”]|$)|[*_\"”]|$)"
)
_NAMED = re.compile(
    r"\b(?:as|to|with|or|answer|text)\b[:,]?\s{0,3}[*_\"“]{0,3}(?:\(([A-J])\)|([A-J])[.:]\s)"
    r"|\b(?:[Oo]ption|[Cc]hoice)\s[*_(]{0,3}([A-J])\b|(?<!\w)\(([A-J])\)[.!*\"]{0,3}$"
)
_PARENTHESES = re.compile(r"(?<!\w)\(([A-J])\)")
_NEGATION = re.compile(
    r"\b(?:not|except|incorrect|wrong|false|neither|cannot|eliminated?|none)\b|n't\b", re.IGNORECASE
)
_FORMULA = re.compile(r"[A-J]\s?[=+]|[=+]\s?\(?[A-J]\b")
_SENTENCE = re.compile(r"(?<=[a-z0-9)][.!?])\s+(?=[A-Z(\"*])")


def read_letter(text: str, letters: str) -> str | None:
    r"""Return the letter that a reply without thoughts answers; None: none, or two.

    >>> read_letter("The answer is (B).\n\nQuestion: What else?\nAnswer: C", "ABCD")
    'B'
    """
    text = own_part(text[-LONGEST:])[-LAST_CHARACTERS:]
    for keyword in reversed(list(_KEYWORD.finditer(text))):
        statement = _STATED.match(text, keyword.start())
        stated = _stated_letters(text, statement, letters)
        if stated:
            return stated if len(stated) == 1 else None
    for statement in reversed(list(_CALLED_RIGHT.finditer(text))):
        stated = _stated_letters(text, statement, letters)
        if stated:
            return stated if len(stated) == 1 else None
    called = rf"(?<![A-Za-z])\(?([{letters}])\)? is (?:the )?(?:correct|right|best)\b"
    called_right = re.findall(called, text)
    if called_right:
        return called_right[-1]
    if _ALONE.fullmatch(text.strip()):
        alone = _letters_after(text, 0, letters)
        if len(alone) == 1:
            return alone
    last_line = text.rstrip().rpartition("\n")[2]
    choice = _QUOTED.format(letters)
    quoted = re.findall(choice, last_line)
    if quoted:
        ends = re.search(choice + _TO_THE_END, text) is not None
        return quoted[0] if len(quoted) == 1 and ends else None
    return _letter_of_last_paragraph(text, letters)


def own_part(text: str) -> str:
    """Return a reply up to where another question or another speaker begins."""
    for mark in _NEXT.finditer(text):
        before = text[: mark.start()].strip()
        if len(before) > _INTRODUCTION or _STATED.search(before):
            return text[: mark.start()]
    return text


def _stated_letters(text: str, statement: re.Match[str] | None, letters: str) -> str:
    """Return the letters that a statement names; "" if it names none, or only under a condition."""
    if statement is None:
        return ""
    stated = _letters_after(text, statement.end(), letters)
    if stated and _is_hypothetical(text, statement):
        return ""
    return stated


def _is_hypothetical(text: str, statement: re.Match[str]) -> bool:
    """Return True if a statement says only what would be right under another condition."""
    first = max(0, statement.start() - 400)
    before = text[first : statement.start()]
    would = "would" in statement[0].lower()
    if not would and "owever" not in before:
        return False
    before = _SENTENCE_END.split(before)[-1]
    if not would:
        return _CONTRAST.match(before) is not None and "however" in before.lower()
    behind = _SENTENCE_END.split(text[statement.end() :], maxsplit=1)[0]
    return bool(_CONDITION.search(before) or _CONDITION_BEHIND.search(behind))


def _letter_of_last_paragraph(text: str, letters: str) -> str | None:
    """Return the only letter that the last paragraph names as a choice."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if not lines:
        return None
    last = lines[-1]
    if len(lines) > 1 and lines[-2].endswith(":"):
        last = f"{lines[-2]} {last}"
    last = last[-LONGEST_PARAGRAPH:]
    if "would" in last and _CONDITION.search(last):
        return None
    named = {letter for match in _NAMED.findall(last) for letter in match if letter}
    if named:
        named |= set(_PARENTHESES.findall(last))
    equated: set[str] = set()
    if not _FORMULA.search(last):
        equated = set(_EQUATED.findall(last))
    candidates = equated or named
    if len(candidates) != 1:
        return None
    if not equated:
        sentence = next((part for part in _SENTENCE.split(last) if _NAMED.search(part)), "")
        if _NEGATION.search(sentence):
            return None
    letter = candidates.pop()
    return letter if letter in letters else None


def _letters_after(text: str, place: int, letters: str) -> str:
    """Return the letter that stands there, or the two of "A or B"; "" if there is none."""
    opened = _OPENED.match(text, place, place + 80)
    assert opened is not None  # the pattern matches an empty text, too
    start = opened.end()
    letter = text[start : start + 1].upper()
    if not letter or letter not in letters or _CONTINUES.match(text, start + 1):
        return ""
    second = re.compile(rf"{_OTHER}([{letters}])(?=\s*(?:[).,;:*$}}\]]|$|\n))")
    other = second.match(text, start + 1)
    if other is not None and other[1] != letter:
        return letter + other[1]
    if opened[0].endswith(("(", "{", "[", "*", "$", "`", '"', "'")):
        return letter
    if _CLOSED.match(text, start + 1):
        return letter
    # "the answer is a ...": an article; "the answer is I ...": a sentence.
    is_word = letter in "AI" and not _EXPLAINED.match(text, start + 1)
    return letter if text[start] == letter and not is_word else ""
