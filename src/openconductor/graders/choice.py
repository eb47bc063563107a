r"""Multiple choice: the prompt, the extractor that belongs to it, and the grader.

A prompt and its extractor are one unit, named by ``style``, because an extractor only finds what
its prompt asks for:

- ``ours``: thoughts are stripped, what follows another question is cut, and in the rest the *last*
  letter that the reply states as its answer counts (``reading.letter`` has the rules). A lone
  capital is no statement: the "I" of "I cannot tell" is unanswered. So is a reply whose last
  statement names two letters. Replies without an answer are wrong, and counted apart ("unparsed").
- ``mmlu-pro``: as TIGER-AI-Lab's MMLU-Pro evaluates (commit f418b11), *with* its last fallback, any
  lone capital. Replies without an answer are wrong, where the official script draws a letter. For
  comparing with papers.
- ``simple-evals``: as OpenAI's simple-evals does (commit ee3b031): the *first* ``Answer: X``. For
  comparing, too.

Not covered: an answer given as the choice's text without its letter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Literal, TypeVar, get_args

from openconductor.config import one_of
from openconductor.errors import ConfigError, GradingError
from openconductor.graders.extraction import strip_thoughts
from openconductor.graders.reading.letter import read_letter
from openconductor.types import Grade, Problem

Style = Literal["ours", "mmlu-pro", "simple-evals"]
T = TypeVar("T")

LETTERS = "ABCDEFGHIJ"
_FORM = (
    "Think step by step, then end with one line of the form 'Answer: X', where X is one of "
    "{listed}."
)
CHOICE_FORMS = tuple(
    _FORM.format(listed=", ".join(LETTERS[:count])) for count in range(2, len(LETTERS) + 1)
)
"""The last paragraphs of our prompts, which say how to answer, for each number of choices."""

# The prompts that papers asked with: from simple-evals (MIT licence), and from MMLU-Pro
# (Apache-2.0) without its five examples.
_PROMPTS: dict[Style, str] = {
    "ours": f"{{question}}\n\n{{choices}}\n\n{_FORM}",
    "simple-evals": "Answer the following multiple choice question. The last line of your response "
    "should be of the following format: 'Answer: $LETTER' (without quotes) where LETTER is one of "
    "{letters}. Think step by step before answering.\n\n{question}\n\n{choices}",
    "mmlu-pro": "The following are multiple choice questions (with answers){about}. Think step by "
    'step and then finish your answer with "the answer is (X)" where X is the correct letter '
    "choice.\n\nQuestion:\n{question}\nOptions:\n{choices}\nAnswer: Let's think step by step.",
}


def choice_prompt(
    question: str, choices: Sequence[str], *, style: Style = "ours", subject: str = ""
) -> str:
    """Return the text that a worker sees.

    Args:
        question: the question without its choices.
        choices: their texts, in the order in which they get their letters.
        style: the prompt's origin.
        subject: the topic of the question, which only mmlu-pro names.

    Raises:
        ValueError: fewer than two choices, or more choices than letters.

    >>> print(choice_prompt("What is 2 + 3?", ["4", "5"]))
    What is 2 + 3?
    <BLANKLINE>
    A) 4
    B) 5
    <BLANKLINE>
    Think step by step, then end with one line of the form 'Answer: X', where X is one of A, B.
    """
    if not 2 <= len(choices) <= len(LETTERS):
        raise ValueError(f"choices: got {len(choices)}, expected 2 to {len(LETTERS)}")
    letters = LETTERS[: len(choices)]
    mark = "." if style == "mmlu-pro" else ")"
    lines = [f"{letter}{mark} {choice}" for letter, choice in zip(letters, choices, strict=True)]
    return _PROMPTS[style].format(
        question=question.strip() if style == "ours" else question,
        choices="\n".join(lines),
        letters=letters,
        listed=", ".join(letters),
        about=f" about {subject}" if subject else "",
    )


def shuffled(choices: Sequence[T], key: str) -> tuple[list[T], list[int]]:
    """Shuffle choices in a way that depends on the key alone, on any machine and version of Python.

    Args:
        choices: in their original order.
        key: names the draw: a seed and the problem's id, say.

    Returns:
        The choices in their new order, and the old place of each: the right one's new place is
        ``places.index(old)``.

    >>> shuffled(["red", "green", "blue"], "seed 0, problem 9")
    (['blue', 'red', 'green'], [2, 0, 1])
    """

    def draw(place: int) -> bytes:
        return blake2b(f"{place}\0{key}".encode("utf-8", "surrogatepass")).digest()

    places = sorted(range(len(choices)), key=draw)
    return [choices[place] for place in places], places


def extract_choice(text: str, letters: str = LETTERS, *, style: Style = "ours") -> str | None:
    """Return the letter that a reply answers; None if it answers none.

    >>> extract_choice("It is (A). No: the answer is (C).", "ABCD")
    'C'
    >>> extract_choice("I cannot tell.") is None
    True
    """
    match style:
        case "ours":
            return read_letter(strip_thoughts(text), letters)
        case "mmlu-pro":
            return _extract_mmlu_pro(text, letters)
        case "simple-evals":
            answer = re.search(rf"(?i)Answer[ \t]*:[ \t]*\$?([{letters}])\$?", text)
            return answer[1] if answer else None


class ChoiceGrader:
    """Compares letters; the reference is the letter of the right choice.

    Args:
        letters: the letters that choices may have.
        style: the extractor's origin, which is that of the prompt.

    Raises:
        ConfigError: the letters are not two capitals or more, or the style is unknown.
    """

    def __init__(self, letters: str = LETTERS, *, style: Style = "ours") -> None:
        if not re.fullmatch(r"[A-Z]{2,}", letters):
            raise ConfigError(
                f"choice grader: got the letters {letters!r}, expected two capitals or more"
            )
        one_of("choice grader, style", style, get_args(Style))
        self.letters = letters
        self.style: Style = style

    async def grade(self, problem: Problem, answer: str) -> Grade:
        """Grade one answer.

        Raises:
            GradingError: the reference is not one of the letters.
        """
        reference = problem.reference
        if not isinstance(reference, str) or reference not in tuple(self.letters):
            raise GradingError(
                f"problem {problem.id}: got the reference {reference!r}, expected a letter"
            )
        letter = extract_choice(answer, self.letters, style=self.style)
        if letter is None:
            return Grade(False, note="unparsed: no letter is stated as the answer, or two are")
        return Grade(letter == reference, letter)


def _extract_mmlu_pro(text: str, letters: str) -> str | None:
    """Repeat ``extract_answer`` of the official evaluation step for step, but in linear time."""
    stated = re.search(rf"answer is \(?([{letters}])\)?", text)
    if stated:
        return stated[1]
    marks = list(re.finditer(rf"[aA]nswer:\s*([{letters}])", text))
    if marks:  # theirs: the last one of the first line that has any
        line_end = text.find("\n", marks[0].start())
        in_line = [mark for mark in marks if line_end < 0 or mark.start() < line_end]
        return in_line[-1][1]
    alone = re.findall(rf"\b[{letters}]\b", text)
    return alone[-1] if alone else None
