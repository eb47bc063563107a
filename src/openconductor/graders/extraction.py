r"""Where the answer is in a reply. In: a worker's reply. Out: what it marks as its answer, or why nothing is.

Thoughts are stripped first. Then the first of these that is there decides, and nothing falls
through to the next:

1. the last box, ``\boxed{...}`` or ``\fbox{...}``. Where it is empty, not closed or without braces there is no answer:
   an earlier box is never taken. Boxes that one list joins (``\boxed{1} \text{ and } \boxed{2}``)
   are one answer of several items; boxes from different places of a reply are not.
2. the last line marked as the answer: ``Answer: ...``, ``the final answer is ...``.
3. a reply that is nothing but one expression, which is its own answer.

Not covered: an answer that is marked by nothing. A number found in prose is a guess, and a guess is
no verdict.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TAG = re.compile(r"<\s*(/?)\s*(?:think|thinking|thoughts?|reasoning)\s*>", re.IGNORECASE)
_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*")
# What may stand between two boxes of one list: blanks, math delimiters, a comma, "and" or "or", the
# next one's name.
_BLANK = re.compile(r"\\[ ,;:!]|\\q?quad(?![a-z])|\\[()\[\]]|[\s$&~]")
_JOINT = re.compile(
    r"(?:\\text\s*\{\s*(?:,|;|,?\s*and|,?\s*or)\s*\}|,?(?:and|or)|[,;])+(?:[A-Za-z](?:_\{?\w{1,3}\}?)?=)?",
    re.IGNORECASE,
)
_JOINT_CHARACTERS = 60

_MARK = re.compile(
    r"\banswer\b(?:[*_\s]*[:=]|[^.:=\n]{0,60}?\s(?:is|are|equals|would be|must be|should be)\b[*_\s]*:?)"
    r"(?:\s*(?:therefore|thus|then|hence|simply|just|exactly)\b)?"
    r"|\banswer\s*(?=\$|\\\(|\\\[)"
    r"|^[#*_ \t]*(?:final\s+)?answer[*_: \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
# Bounded, so that a reply full of brackets that never close takes no quadratic time.
_MATH = re.compile(
    r"\$\$(.{1,2000}?)\$\$|\\\[(.{1,2000}?)\\\]|(?<!\\)\$((?:\\.|[^$\\\n]){1,2000})\$|\\\(([^\n]{1,2000}?)\\\)",
    re.DOTALL,
)
_MATH_LIST = re.compile(r"\s*(?:,|;|,?\s*and\b|,?\s*or\b)?\s*", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\n|\.(?=\s|$)")
_IS = re.compile(r"(?:\bis|\bare|\bequals|:)\s+(?!not\b)", re.IGNORECASE)
_UNIT_BEHIND = re.compile(r"\s*(\\?%|[A-Za-z]+)(?=\s*[.,;]?\s*(?:\n|$))")
_WORD = re.compile(r"[A-Za-z]{2,}")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # an escaped brace is no brace
_BARE_CHARACTERS = 300
_MARKED_CHARACTERS = 4000
_LAST_CHARACTERS, _LAST_MARKS = 20_000, 50
"""How far from its end a reply is searched for a line that is marked as its answer, and how many marks are tried."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a reply marks as its answer.

    Attributes:
        items: the answer; more than one where one list of boxes holds several.
        why: where there is none, why.
    """

    items: tuple[str, ...] = ()
    why: str = ""

    @property
    def text(self) -> str | None:
        """The whole answer, its items joined by commas; None where there is none."""
        return ", ".join(self.items) if self.items else None


def find_answer(reply: str) -> Found:
    r"""The answer of a reply, by the rules of this module.

    >>> find_answer("First \\boxed{1}, so the final answer is \\boxed{3}.").text
    '3'
    >>> find_answer("\\boxed{1}, and then \\boxed{").why
    'the last box is not closed'
    >>> find_answer("I think that it is 3 or 4.").why
    'no box and no line that is marked as the answer'
    """
    text = strip_thoughts(reply)
    boxed = find_boxed(text)
    if boxed is not None:
        return boxed
    line = _marked_line(text)
    line = _bare(text) if line is None else line
    return Found((line,)) if line else Found(why="no box and no line that is marked as the answer")


def strip_thoughts(reply: str) -> str:
    """The reply without its thoughts; one that is not closed reaches to the end.

    Where a thought is closed that was never opened (a chat template opens it), all that stands
    before it is thought.

    >>> strip_thoughts("<think>Is it 3? <b>4</b></think> It is 4. <think>Or").strip()
    'It is 4.'
    """
    kept: list[str] = []
    place, inside, thought_before = 0, False, False
    for tag in _TAG.finditer(reply):
        if not inside:
            kept.append(reply[place : tag.start()])
        if not tag[1]:
            inside = True
        elif inside:
            inside, thought_before = False, True
        elif not thought_before:
            kept.clear()
            thought_before = True
        place = tag.end()
    if not inside:
        kept.append(reply[place:])
    return "".join(kept)


def find_boxed(text: str) -> Found | None:
    """What the last box holds, together with those that one list joins to it; None where there is no box at all."""
    boxes = list(_BOX.finditer(text))
    if not boxes:
        return None
    if text[boxes[-1].end() : boxes[-1].end() + 1] != "{":
        return Found(why="the last box has no braces")
    items: list[str] = []
    start = len(text)
    for box in reversed(boxes):
        content = braced(text, box.end())
        between = "" if content is None else text[box.end() + len(content) + 2 : start]
        joined = 0 < len(between) <= _JOINT_CHARACTERS and _JOINT.fullmatch(_BLANK.sub("", between))
        if not items and not (content or "").strip():
            return Found(
                why="the last box is not closed" if content is None else "the last box is empty"
            )
        if content is None or not content.strip() or (items and not joined):
            break
        items.append(content.strip())
        start = box.start()
    return Found(tuple(dict.fromkeys(reversed(items))))


def braced(text: str, start: int) -> str | None:
    """What the braces hold that open at ``start``; None where none open there, or they are not closed."""
    if text[start : start + 1] != "{":
        return None
    depth = 0
    for brace in _BRACE.finditer(text, start):
        depth += (brace[0] == "{") - (brace[0] == "}")
        if not depth:
            return text[start + 1 : brace.start()]
    return None


def _marked_line(text: str) -> str | None:
    """What follows the last mark that anything follows; "" where nothing follows any, None where there is no mark."""
    text = text[-_LAST_CHARACTERS:]
    marks = list(_MARK.finditer(text))[-_LAST_MARKS:]
    values = (
        _sentence(text[mark.end() : mark.end() + _MARKED_CHARACTERS]) for mark in reversed(marks)
    )
    return next(filter(None, values), "") if marks else None


def _sentence(rest: str) -> str:
    """The value that a sentence begins with or states: its leading formulas, or what its last *is* is followed by."""
    rest = rest.lstrip(" \t*_:\n\"'")
    if formulas := _leading_formulas(rest):
        return formulas.strip("$ ")
    sentence = _IS.split(_first_sentence(rest))[-1]
    return (_leading_formulas(sentence) or sentence.strip(" \t*_`\"'.")).strip("$ ")


def _first_sentence(text: str) -> str:
    """Up to the first full stop or line's end that is in no formula."""
    place = 0
    for formula in _MATH.finditer(text):
        if _SENTENCE_END.search(text, place, formula.start()) is not None:
            break
        place = formula.end()
    end = _SENTENCE_END.search(text, place)
    return text[: end.start()] if end is not None else text


def _leading_formulas(text: str) -> str:
    """The formulas that a text begins with, as a list; of a single one also the percent sign or the unit behind it."""
    items: list[str] = []
    place = 0
    while (formula := _MATH.match(text, place)) is not None:
        items.append(next(group for group in formula.groups() if group is not None).strip())
        place = formula.end()
        joint = _MATH_LIST.match(text, place)
        if joint is None or not joint[0].strip() or _MATH.match(text, joint.end()) is None:
            break
        place = joint.end()
    unit = _UNIT_BEHIND.match(text, place) if len(items) == 1 else None
    return ", ".join(items) + (f" {unit[1]}" if unit is not None else "")


def _bare(text: str) -> str:
    """The reply itself, where it is nothing but one expression: short, and at most one word outside its formulas."""
    reply = text.strip()
    outside = _COMMAND.sub(" ", _MATH.sub(" ", reply[: _BARE_CHARACTERS + 1]))
    if len(reply) > _BARE_CHARACTERS or "\n" in outside.strip() or len(_WORD.findall(outside)) > 1:
        return ""
    return _leading_formulas(reply) or reply
