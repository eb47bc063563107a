r"""Compares answers in words: the same words, one changed into its opposite, or neither.

``compare_words`` decides what needs no knowledge of the subject. ``plain_number`` brings numbers
that are written as words, or as about a value, into figures.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import product

Decision = tuple[bool | None, str]
"""Right, wrong or undecided (None), and the note."""

_AFFIRMS = {"yes", "true", "correct"}
_DENIES = {"no", "false", "incorrect"}
_OPPOSITES = """
increase decrease   increasing decreasing   increased decreased   rise fall   higher lower
more less   greater smaller   greater less   positive negative   left right   odd even
converge diverge   clockwise counterclockwise   clockwise anticlockwise   north south   east west
up down   upward downward   above below   before after   endothermic exothermic
attractive repulsive   open closed   concave convex   prime composite   rational irrational
finite infinite   stable unstable   male female   inside outside   maximum minimum
largest smallest   acidic basic   elastic inelastic   first last   faster slower   hotter colder
linear nonlinear   dependent independent   reversible irreversible   possible impossible
"""
_SPELLINGS = {"convergent": "converge", "divergent": "diverge", "grey": "gray"}
_ENDINGS = (
    (re.compile(r"(?<=\w{3})our(?=s?$|al|ed|ing|able)"), "or"),
    (re.compile(r"(?<=\w{3})is(?=e[sdr]?$|ing$|ations?$)"), "iz"),
    (re.compile(r"(?<=\w\w[^sui])s$"), ""),
)
_LEADING = re.compile(r"^(?:(?:it|they|this|is|are|to|will|an?|the)\s+(?=\w))+")
_ARTICLES = re.compile(r"\b(?:a|an)\b(?=\s+\w)|\bthe\b")  # "vitamin A" has none
_MARKUP = re.compile(r"\\(?:text|mathrm|mathbf|mathit|textbf)\s*(?=\{)|[{}$\\*`\"“”]")
_NO_WORD = re.compile(r"[^\w\s.%+]|(?<!\d)\.|\.(?!\d)")
_REMARK = re.compile(r"\s*\([^()]{1,80}\)$")
_HEDGE = re.compile(r"\b(?:or|not|but|unless|except)\b|\?")
_LIST = re.compile(r"\s*,\s*(?:and\s+)?|\s+and\s+")
_VERDICT = re.compile(
    r"\W*(yes|no|true|false|correct|incorrect)\b\s*(?:$|[.,;:!–—-])", re.IGNORECASE
)
_UNKNOWN = re.compile(
    r"(?:i\s(?:am|.?m)\s)?not (?:sure|certain)"
    r"|(?:i\s)?(?:do not|don.?t|cannot|can.?t) (?:know|tell|say|answer|be determined)|unknown"
    r"|(?:there is )?not enough information|cannot determine",
    re.IGNORECASE,
)
_NUMBER_ALONE = re.compile(r"[-+]?[\d.,]*\d[\d.,]*")
_CHEMICAL = re.compile(r"(?:[A-Z][a-z]?\d*){1,12}")  # H2O
_SQUEEZED = re.compile(r"\\(?:text|mathrm|rm|ce)(?![a-z])|[\s_{}$]")
RANGE = re.compile(r"(\d[\d.,]*)\s*(?:-|–|—|to)\s*(\d[\d.,]*)(\s*[A-Za-z%]*)")

_UNDER_TWENTY = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
)
_COUNTS = {word: str(number) for number, word in enumerate(_UNDER_TWENTY.split())}
_PARTS = {"half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "tenth": 10}
_PART = re.compile(
    rf"(?:({'|'.join(_COUNTS)}|a)[\s-](?={'|'.join(_PARTS)})|(?=hal))({'|'.join(_PARTS)})s?"
    r"(?:\s+of\s.{0,60})?",
    re.IGNORECASE,
)
_LARGER = "hundred thousand million billion trillion dozen score and or to point half by over times"
_COUNT = re.compile(
    rf"^({'|'.join(_COUNTS)})(?=$|\s(?!(?:{'|'.join(_LARGER.split())}|plus|minus|of|out|way)\b))",
    re.IGNORECASE,
)
_LARGER_WORDS = re.compile(
    rf"\b(?:{'|'.join(_COUNTS)}|hundred|thousand|million|billion|trillion|dozen)s?\b", re.IGNORECASE
)
_ABOUT = re.compile(
    r"(?:about|approximately|approx\.?|around|roughly|circa|in(?: the year)?|\\approx|\\sim|≈|~)\s*"
    r"(?=[-−$]?[\d.])",
    re.IGNORECASE,
)
_MINUS = re.compile(r"(?:minus|negative)\s+(?=\d)", re.IGNORECASE)


def plain_number(text: str) -> str:
    """Return a text whose number is written in figures, without "about" before it.

    >>> plain_number("about 50"), plain_number("three days"), plain_number("one third")
    ('50', '3 days', '1/3')
    """
    text = text.strip()
    part = _PART.fullmatch(text)
    if part is not None:
        count = _COUNTS.get((part[1] or "one").lower(), "1")
        return f"{count}/{_PARTS[part[2].lower()]}"
    text = _COUNT.sub(lambda count: _COUNTS[count[1].lower()], text)
    return _MINUS.sub("-", _ABOUT.sub("", text, count=1), count=1)


def compare_words(reference: str, answer: str) -> Decision:
    """Decide whether two answers in words say the same."""
    gold = words_of(reference)
    words = words_of(answer)
    in_letters = not re.search(r"\d", reference + answer)
    if gold == words or (in_letters and "".join(gold) == "".join(words)):
        return True, "same words"
    verdict = _VERDICT.match(answer)
    if verdict is not None and " ".join(gold) in _AFFIRMS | _DENIES:
        return _compare_verdicts(gold[0], verdict[1].lower(), words)
    if _UNKNOWN.match(answer.strip()) and not _UNKNOWN.match(reference.strip()):
        return False, "says that it is unknown"
    formula = _SQUEEZED.sub("", reference)
    squeezed = _SQUEEZED.sub("", answer)
    is_number = _NUMBER_ALONE.fullmatch(squeezed)
    chemical = not in_letters and _CHEMICAL.fullmatch(formula)
    if chemical and (is_number or _CHEMICAL.fullmatch(squeezed)):
        return formula == squeezed, "chemical formula"
    gold_range = RANGE.fullmatch(reference)
    if gold_range is not None:
        return _compare_ranges(gold_range, answer)
    if is_number and squeezed not in reference and not _LARGER_WORDS.search(reference):
        return False, "a number for words"
    if _adds_remark(reference, answer) or _adds_remark(answer, reference):
        return True, "same words, and a remark"
    gold_items = [words_of(item) for item in _LIST.split(reference)]
    if gold_items == [words_of(item) for item in _LIST.split(answer)]:
        return True, "the same list"
    if _are_opposites(gold, words):
        return False, "the opposite"
    return None, "undecided: other words"


def _adds_remark(text: str, longer: str) -> bool:
    """Return True if ``longer`` is a text with a remark in parentheses that changes nothing."""
    rest = words_of(_REMARK.sub("", longer))
    if rest != words_of(text) or _HEDGE.search(longer):
        return False
    return _opposites().isdisjoint(product(words_of(longer), rest))


def words_of(text: str) -> list[str]:
    """Return the words of a text: in lower case and one spelling, singular, without articles."""
    plain = _MARKUP.sub("", text).casefold().replace("'", "").replace("’", "")
    plain = re.sub(r"(?<=[a-z])-(?=[a-z])", " ", plain)
    plain = re.sub(r"(?<![\w)])[-−](?=\d)", "minus ", plain)
    plain = _LEADING.sub("", _NO_WORD.sub(" ", plain).strip() + " ")
    return [_one_spelling(word) for word in _ARTICLES.sub(" ", plain).split()]


def _one_spelling(word: str) -> str:
    word = _SPELLINGS.get(word, word)
    for pattern, replacement in _ENDINGS:
        word = pattern.sub(replacement, word)
    return _COUNTS.get(word, word)


def _compare_verdicts(gold: str, verdict: str, words: list[str]) -> Decision:
    """Compare an answer that begins with *yes* or *no* with a reference that is one of these."""
    if not _AFFIRMS.isdisjoint(words) and not _DENIES.isdisjoint(words):
        return None, "undecided: other words"
    if (verdict in _AFFIRMS) == (gold in _AFFIRMS):
        return True, "the same verdict"
    return False, "the opposite"


def _compare_ranges(gold: re.Match[str], answer: str) -> Decision:
    match = RANGE.fullmatch(answer.strip().strip("$"))
    if match is None:
        is_number = _NUMBER_ALONE.fullmatch(answer.strip())
        return (False, "no range") if is_number else (None, "undecided")
    units = {gold[3].strip(), match[3].strip()} - {""}
    return gold[1] == match[1] and gold[2] == match[2] and len(units) < 2, "range"


def _are_opposites(gold: list[str], words: list[str]) -> bool:
    """Return True if the words are the same but for one opposite, or one *not*."""
    for shorter, longer in ((gold, words), (words, gold)):
        rest = [word for word in longer if word not in {"not", "no", "non"}]
        if rest == shorter and len(longer) == len(shorter) + 1:
            return True
    if len(gold) != len(words):
        return False
    changed = [pair for pair in zip(gold, words, strict=True) if pair[0] != pair[1]]
    return len(changed) == 1 and changed[0] in _opposites()


@cache
def _opposites() -> set[tuple[str, str]]:
    pairs: set[tuple[str, str]] = set()
    words = [_one_spelling(word) for word in _OPPOSITES.split()]
    for one, other in zip(words[::2], words[1::2], strict=True):
        pairs |= {(one, other), (other, one)}
    return pairs
