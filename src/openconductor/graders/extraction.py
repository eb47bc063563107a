r"""Finds the answer of a reply, or the reason why it has none.

Thoughts are stripped first; of ``<answer>`` tags the last one is read alone. Then the first of
these that is there decides, and nothing falls through to the next:

1. the last box, ``\boxed{...}`` or ``\fbox{...}``. If it is empty, not closed or without braces,
   there is no answer: an earlier box is never taken. Boxes that one list joins (``\boxed{1}
   \text{ and } \boxed{2}``) are one answer of several items; boxes from different places of a reply
   are not.
2. a last line that begins with ``####``, or the last ``"answer": ...`` of JSON.
3. the last line marked as the answer: ``Answer: ...``, ``the final answer is ...``, also in
   Chinese, French, German, Italian, Portuguese and Spanish.
4. a reply that is only one expression, which is its own answer.

Not covered: an answer that is not marked. A number found in prose is a guess, and a guess is no
verdict.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TAG = re.compile(
    r"<\s{0,3}(/?)\s{0,3}(?:think|thinking|thoughts?|reasoning)\s{0,3}>", re.IGNORECASE
)
_BOX = re.compile(r"\\(?:boxed|fbox|framebox)(?![A-Za-z])\s*")
_ANSWER_TAG = re.compile(
    r"<answer>((?:(?!</?answer>).){1,4000})</answer>", re.DOTALL | re.IGNORECASE
)
_JSON = re.compile(
    r'"(?:final[ _]?)?(?:answer|result)"\s*:\s*'
    r'(?:"((?:[^"\\]|\\.){1,2000})"|\[([^\[\]]{1,2000})\]|(-?[\d.]+))',
    re.IGNORECASE,
)
_HASHES = re.compile(r"(?:^|\n)####[ \t]*([^\n]+)$")  # as in GSM8K
# Between two boxes of one list: blanks, math delimiters, a comma, "and" or "or", a name.
_BLANK = re.compile(r"\\[ ,;:!]|\\q?quad(?![a-z])|\\[()\[\]]|[\s$&~]")
_JOINT = re.compile(
    r"(?:\\text\s*\{\s*(?:,|;|,?\s*and|,?\s*or)\s*\}|,?(?:and|or)|[,;])+"
    r"(?:[A-Za-z](?:_\{?\w{1,3}\}?)?=)?",
    re.IGNORECASE,
)
_JOINT_CHARACTERS = 60

_MARK = re.compile(
    r"\b(?:answer|r\u00e9ponse|respuesta|resposta|risposta|antwort)\b(?:[*_\s]*[:=\uff1a]"
    r"|[^.:=\n]{0,60}?\s(?:is|are|equals|would be|must be|should be|est|es|ist)\b[*_\s]*:?)"
    r"(?:\s*(?:therefore|thus|then|hence|simply|just|exactly)\b)?"
    r"|\banswer\s*(?=\$|\\\(|\\\[)"
    r"|\u7b54\u6848[*\s]*(?:[:\uff1a=]|\u662f|\u4e3a)[:\uff1a]?"  # Chinese: the answer is
    r"|^[#*_ \t]*(?:final\s+)?answer[*_: \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
# Bounded, so that a reply full of brackets that never close takes no quadratic time.
_MATH = re.compile(
    r"\$\$(.{1,2000}?)\$\$|\\\[(.{1,2000}?)\\\]"
    r"|(?<!\\)\$((?:\\.|[^$\\\n]){1,2000})\$|\\\(([^\n]{1,2000}?)\\\)",
    re.DOTALL,
)
_MATH_LIST = re.compile(r"\s*(?:,|;|,?\s*and\b|,?\s*or\b)?\s*", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\n|\.(?=\s|$)|\u3002")
_IS = re.compile(r"(?:\bis|\bare|\bequals|(?<![\d\s]):)\s+(?!not\b)", re.IGNORECASE)
_VERDICT = re.compile(r"(?:yes|no|true|false)\s*[,;:–—-]", re.IGNORECASE)
_UNIT_BEHIND = re.compile(r"\s*(\\?%|[A-Za-z]+)(?=\s*[.,;]?\s*(?:\n|$))")
_WORD = re.compile(r"[A-Za-z]{2,}")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # an escaped brace is no brace
_BARE_CHARACTERS = 300
_MARKED_CHARACTERS = 4000
# The marks are searched in the end of a reply, and the last ones are tried.
_LAST_CHARACTERS = 20_000
_LAST_MARKS = 50


@dataclass(frozen=True, slots=True)
class Extraction:
    """The marked answer of a reply.

    Attributes:
        items: the answer; more than one where one list of boxes holds several.
        reason: why there is no answer; "" if there is one.
    """

    items: tuple[str, ...] = ()
    reason: str = ""

    @property
    def text(self) -> str | None:
        """The whole answer, its items joined by commas; None if there is none."""
        return ", ".join(self.items) if self.items else None


def find_answer(reply: str) -> Extraction:
    r"""Return the answer of a reply, by the rules of this module.

    >>> find_answer("First \\boxed{1}, so the final answer is \\boxed{3}.").text
    '3'
    >>> find_answer("\\boxed{1}, and then \\boxed{").reason
    'the last box is not closed'
    >>> find_answer("I think that it is 3 or 4.").reason
    'no box and no line that is marked as the answer'
    """
    text = strip_thoughts(reply)
    tagged = _ANSWER_TAG.findall(text[-_LAST_CHARACTERS:])
    if tagged:
        text = tagged[-1].strip()
    boxed = find_boxed(text)
    if boxed is not None:
        return boxed
    line = _labelled_value(text) or _marked_line(text)
    if line is None and tagged:
        line = text
    if line is None:
        line = _bare_expression(text)
    if not line:
        return Extraction(reason="no box and no line that is marked as the answer")
    return Extraction((line,))


def strip_thoughts(reply: str) -> str:
    """Return the reply without its thoughts; an open one reaches to the end.

    If a thought is closed that was never opened (a chat template opens it), all text before it is
    thought.

    >>> strip_thoughts("<think>Is it 3? <b>4</b></think> It is 4. <think>Or").strip()
    'It is 4.'
    """
    if "<" not in reply:
        return reply
    small = reply.casefold()
    if not any(word in small for word in ("think", "thought", "reasoning")):
        return reply
    kept: list[str] = []
    place = 0
    inside = False
    thought_before = False
    for tag in _TAG.finditer(reply):
        if not inside:
            kept.append(reply[place : tag.start()])
        if not tag[1]:
            inside = True
        elif inside:
            inside = False
            thought_before = True
        elif not thought_before:
            kept.clear()
            thought_before = True
        place = tag.end()
    if not inside:
        kept.append(reply[place:])
    return "".join(kept)


def find_boxed(text: str) -> Extraction | None:
    """Return the content of the last box, and of those that one list joins to it.

    None: the text has no box.
    """
    boxes = list(_BOX.finditer(text))
    if not boxes:
        return None
    last = boxes.pop()
    content = braced(text, last.end())
    if content is None:
        opened = text.startswith("{", last.end())
        return Extraction(
            reason="the last box is not closed" if opened else "the last box has no braces"
        )
    if not content.strip():
        return Extraction(reason="the last box is empty")
    items = [content.strip()]
    start = last.start()
    for box in reversed(boxes):
        content = braced(text, box.end())
        if content is None or not content.strip():
            break
        between = text[box.end() + len(content) + 2 : start]
        if len(between) > _JOINT_CHARACTERS or not _JOINT.fullmatch(_BLANK.sub("", between)):
            break
        items.append(content.strip())
        start = box.start()
    return Extraction(tuple(dict.fromkeys(reversed(items))))


def braced(text: str, start: int) -> str | None:
    """Return the content of the braces that open at ``start``; None if none open or close."""
    if not text.startswith("{", start):
        return None
    depth = 0
    for brace in _BRACE.finditer(text, start):
        if brace[0] == "{":
            depth += 1
        elif brace[0] == "}":
            depth -= 1
        if depth == 0:
            return text[start + 1 : brace.start()]
    return None


def _labelled_value(text: str) -> str:
    """Return the value behind #### on the last line, or of the key ``answer`` in JSON; else ""."""
    end = text[-_LAST_CHARACTERS:].rstrip()
    hashes = _HASHES.search(end)
    if hashes is not None and not _MARK.search(hashes[1]):
        return _leading_formulas(hashes[1]) or hashes[1].strip(" *`$")
    values = _JSON.findall(end)
    return "".join(values[-1]).strip() if values else ""


def _marked_line(text: str) -> str | None:
    """Return the text behind the last mark that has any; "" if none has, None without marks."""
    text = text[-_LAST_CHARACTERS:]
    marks = list(_MARK.finditer(text))[-_LAST_MARKS:]
    if not marks:
        return None
    for mark in reversed(marks):
        value = _stated_value(text[mark.end() : mark.end() + _MARKED_CHARACTERS])
        if value:
            return value
    return ""


def _stated_value(rest: str) -> str:
    """Return the formulas that a sentence begins with, or the text behind its last *is*.

    A sentence that begins with *yes* or *no* is taken whole.
    """
    rest = rest.lstrip(" \t*_:\n\"'")
    value = _leading_formulas(rest)
    if not value:
        stated = _first_sentence(rest)
        if _VERDICT.match(stated) is None:
            stated = _IS.split(stated)[-1]
        value = _leading_formulas(stated) or stated.strip(" \t*_`\"'.")
    return value.strip("$ ")


def _first_sentence(text: str) -> str:
    """Return the text up to the first full stop or line end that is in no formula."""
    place = 0
    for formula in _MATH.finditer(text):
        if _SENTENCE_END.search(text, place, formula.start()) is not None:
            break
        place = formula.end()
    end = _SENTENCE_END.search(text, place)
    return text if end is None else text[: end.start()]


def _leading_formulas(text: str) -> str:
    """Return the formulas that a text begins with, as a list; a single one keeps its unit."""
    items: list[str] = []
    place = 0
    formula = _MATH.match(text)
    while formula is not None:
        inside = formula[formula.lastindex or 0]  # one group of each kind of delimiters
        items.append(inside.strip())
        place = formula.end()
        joint = _MATH_LIST.match(text, place)
        if joint is None or not joint[0].strip():
            break
        formula = _MATH.match(text, joint.end())
    if len(items) == 1:
        unit = _UNIT_BEHIND.match(text, place)
        if unit is not None:
            items[0] += f" {unit[1]}"
    return ", ".join(items)


def _bare_expression(text: str) -> str:
    """Return the reply itself if it is one short expression, with at most one word; else ""."""
    reply = text.strip()
    if len(reply) > _BARE_CHARACTERS:
        return ""
    outside = _COMMAND.sub(" ", _MATH.sub(" ", reply))
    if "\n" in outside.strip() or len(_WORD.findall(outside)) > 1:
        return ""
    return _leading_formulas(reply) or reply
