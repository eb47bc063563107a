"""Answers to look at: the question, the reference, the episode, and the verdict with its reason.

``list_answers`` and ``read_answers`` add to records what their run's folder holds of them.
``read_examples`` picks and reads the answers that the page of a report shows. ``merge_questions``
gives records of one question one name.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from openconductor.baselines.consensus import answer_key
from openconductor.evaluation.eval_config import MOST_REPEATS
from openconductor.evaluation.records import Record, journal_place
from openconductor.evaluation.sheets import KeptQuestion, read_questions
from openconductor.evaluation.statistics import Key
from openconductor.store import StoredEpisode, read_store
from openconductor.types import text_of

SHORT = 60
"""The most characters of a text that a reason quotes."""
VERDICTS = {True: "right", False: "wrong", None: "undecided"}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of a run.

    Attributes:
        record: its record.
        question: the question; "": the run's folder does not hold it.
        reference: the right answer as a text; None: the run's folder does not hold it.
        episode: plan, steps and costs; None: they were not read, or the journal lacks them.
    """

    record: Record
    question: str = ""
    reference: str | None = None
    episode: StoredEpisode | None = None

    @property
    def verdict(self) -> str:
        """The verdict in a word."""
        return VERDICTS[self.record.correct]

    @property
    def reason(self) -> str:
        """The reason of the verdict in short; "": the grader gave none."""
        record = self.record
        if record.error or record.extracted is None:
            return record.error or record.note
        text = f"got {_shorten(record.extracted)}"
        if not record.correct and self.reference is not None:
            text += f", expected {_shorten(self.reference)}"
        return f"{record.note}; {text}" if record.note else text


def _shorten(text: str) -> str:
    return textwrap.shorten(text, SHORT, placeholder="…")


def list_answers(folder: Path, records: Iterable[Record]) -> list[Answer]:
    """Return answers with the questions and references that a run's folder keeps.

    Raises:
        ConfigError: the file of the questions is not one of a run.
    """
    kept = read_questions(folder)
    answers: list[Answer] = []
    for record in records:
        question, reference = kept.get(record.key, ("", None))
        answers.append(Answer(record, question, reference))
    return answers


def read_answers(folder: Path, records: Iterable[Record]) -> list[Answer]:
    """Return answers with their questions, references and episodes from a run's folder.

    Raises:
        ConfigError: the file of the questions is not one of a run.
        JournalError: the journal cannot be read.
    """
    answers: list[Answer] = []
    with read_store(journal_place(folder)) as journal:
        for answer in list_answers(folder, records):
            episode = journal.episode(answer.record.episode)
            question = answer.question
            if not question and episode is not None:
                question = text_of(episode.question)
            answers.append(replace(answer, question=question, episode=episode))
    return answers


# ── answers in plain words ────────────────────────────────────────────────────────────────────────
def answer_text(record: Record) -> str:
    """Return a record's answer in plain words; "" if there is none."""
    if record.extracted is not None:
        return plain_words(record.extracted)
    if not record.answer:
        return ""
    return plain_words(answer_key(record.answer) or record.answer)


def plain_words(text: str) -> str:
    r"""Return a text's words in one case, between blanks, without markup and punctuation.

    >>> plain_words("It is **\\boxed{1,234.0}**, (B)."), plain_words("_7_ or 4.42")
    ('it is 1234 b', '7 or 4.42')
    """
    text = re.sub(r"\\(boxed|text\w*|mathrm|mathbf)\b", " ", text.casefold())
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    text = re.sub(r"[^\w.+\-/^<>%\\]|_", " ", text)
    words = [word.strip(".") for word in text.split()]
    return " ".join(re.sub(r"^(-?\d+)\.0+$", r"\1", word) for word in words if word)


# ── questions of one text ─────────────────────────────────────────────────────────────────────────
_CHOICE = re.compile(r"\s*\(?[A-Za-z][).:]\s")
"""The beginning of a line that is a choice."""


def question_digest(kept: KeptQuestion) -> str:
    r"""Return a question's letters and digits, its choices sorted.

    Without choices the reference belongs to it, because signs alone may tell sums apart.

    >>> first = question_digest(KeptQuestion("Which one?\n(A) oak\n(B) elm", "A"))
    >>> first == question_digest(KeptQuestion("which  one\nA. elm\nB. oak", "B"))
    True
    """
    lines: list[str] = []
    choices: list[str] = []
    for line in kept.question.casefold().splitlines():
        found = _CHOICE.match(line)
        words = re.sub(r"[\W_]", "", line[found.end() :] if found else line)
        (choices if found else lines).append(words)
    ends = sorted(choices) or [kept.reference]
    return "\n".join(("".join(lines), *ends))


def merge_questions(
    records: Iterable[Record], questions: Mapping[Key, KeptQuestion]
) -> tuple[Record, ...]:
    """Return records in which a question has one name, by its digest, whatever tasks call it.

    A question that was asked under several names is one that was asked repeatedly.

    Args:
        records: those of an evaluation.
        questions: its questions (``read_questions``).
    """
    by_digest: dict[str, list[Key]] = {}
    for key, kept in questions.items():
        by_digest.setdefault(question_digest(kept), []).append(key)
    places: dict[Key, tuple[Key, int]] = {}
    for keys in by_digest.values():
        for number, key in enumerate(keys):
            places[key] = (keys[0], number)
    merged: list[Record] = []
    for record in records:
        (task, problem), number = places.get(record.key, (record.key, 0))
        sample = record.sample + number * MOST_REPEATS
        merged.append(replace(record, task=task, problem=problem, sample=sample))
    return tuple(merged)


# ── examples ──────────────────────────────────────────────────────────────────────────────────────
def read_examples(
    folder: Path, ours: Sequence[Record], best: Sequence[Record]
) -> dict[str, Answer]:
    """Return the answers of ``choose_examples``, read from a run's folder.

    Raises:
        ConfigError: the file of the questions is not one of a run.
        JournalError: the journal cannot be read.
    """
    examples = choose_examples(ours, best)
    answers = read_answers(folder, examples.values())
    return dict(zip(examples, answers, strict=True))


def choose_examples(ours: Sequence[Record], best: Sequence[Record]) -> dict[str, Record]:
    """Return a right answer, a wrong one, and one that orchestrating rescued, by these names.

    Rescued is a right answer to a question that the best worker alone got wrong. Wrong is an answer
    with a text, if there is one.

    Args:
        ours: the records of the system.
        best: those of the best worker alone.
    """
    lost = {record.key for record in best if record.correct is False}
    examples: dict[str, Record] = {}
    for record in ours:
        if record.correct and record.key in lost:
            examples.setdefault("rescued by orchestrating", record)
        elif record.correct:
            examples.setdefault("right", record)
        elif record.correct is False:
            shown = examples.setdefault("wrong", record)
            if shown.answer is None:
                examples["wrong"] = record
    return examples
