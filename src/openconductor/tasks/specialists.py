"""Questions of one skill and of two in a row, for workers that have one skill each.

``recipes/specialists.py`` makes the workers; ``specialists.toml`` has the words. The test split has
wordings, numbers, and a third of the pairs of skills that nothing else has. The answer of a
question is a list of items, compared exactly.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from openconductor.graders.exact import ExactGrader
from openconductor.tasks.data.items import Benchmark, Item, Loaded, Source
from openconductor.types import Problem

Split = Literal["train", "test"]
Items = tuple[str, ...]
Pair = tuple[str, str]

LENGTH = 4
"""The number of items in a question's list."""
NUMBERS = tuple(str(number) for number in range(10, 100))
NEW_NUMBERS = NUMBERS[5::11]
"""The numbers that only the test split has, one of them at least in each of its lists."""
KNOWN_NUMBERS = tuple(number for number in NUMBERS if number not in NEW_NUMBERS)
KINDS: Mapping[Split, tuple[str, ...]] = {
    "train": ("single", "pair"),
    "test": ("single", "pair", "new pair"),
}
"""The kinds of question of a split; they take turns."""
COUNTS: Mapping[Split, int] = {"train": 2400, "test": 240}
"""The number of questions of a split, if none is asked for."""

_UNITS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS = (
    *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen"),
    *("sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_WORDS: dict[str, Any] = tomllib.loads(
    files("openconductor.tasks").joinpath("specialists.toml").read_text("utf-8")
)
_PLURALS: Mapping[str, str] = _WORDS["plurals"]


def _name_number(number: int) -> str:
    """Return a number of two digits in words."""
    if number < 20:
        return _TEENS[number - 10]
    tens, unit = divmod(number, 10)
    name = _TENS[tens - 2]
    return f"{name}-{_UNITS[unit - 1]}" if unit else name


_NAMES = {number: _name_number(int(number)) for number in NUMBERS}
_NUMBERS_BY_NAME = {name: number for number, name in _NAMES.items()}


# ── skills ────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class Skill:
    """Something that can be done to a list.

    Attributes:
        do: turns the items into the answer's.
        reads: the contents of the lists that it is asked about.
        wordings: its instructions in all splits but the test split.
        new_wordings: its instructions in the test split.
    """

    do: Callable[[Items], Items]
    reads: tuple[str, ...]
    wordings: tuple[str, ...]
    new_wordings: tuple[str, ...]

    def wordings_of(self, split: Split) -> tuple[str, ...]:
        """Return its instructions in a split."""
        return self.new_wordings if split == "test" else self.wordings


def _write_digits(items: Items) -> Items:
    return tuple(_NUMBERS_BY_NAME[item] for item in items)


def _sort(items: Items) -> Items:
    return tuple(sorted(items, key=int))


def _reverse(items: Items) -> Items:
    return items[::-1]


def _write_plurals(items: Items) -> Items:
    return tuple(_PLURALS[item] for item in items)


def _write_capitals(items: Items) -> Items:
    return tuple(item.upper() for item in items)


def _write_words(items: Items) -> Items:
    return tuple(_NAMES[item] for item in items)


def _find_largest(items: Items) -> Items:
    return (max(items, key=int),)


def _read_skill(name: str, do: Callable[[Items], Items]) -> Skill:
    table = _WORDS["skills"][name]
    return Skill(do, *(tuple(table[key]) for key in ("reads", "wordings", "new_wordings")))


SKILLS: Mapping[str, Skill] = {
    "digits": _read_skill("digits", _write_digits),
    "sort": _read_skill("sort", _sort),
    "reverse": _read_skill("reverse", _reverse),
    "plural": _read_skill("plural", _write_plurals),
    "capitals": _read_skill("capitals", _write_capitals),
    "words": _read_skill("words", _write_words),
    "largest": _read_skill("largest", _find_largest),
}
PAIRS: tuple[Pair, ...] = tuple((first, second) for first, second in _WORDS["pairs"])
"""The pairs of skills that all splits have."""
NEW_PAIRS: tuple[Pair, ...] = tuple((first, second) for first, second in _WORDS["new_pairs"])
"""The pairs that only the test split has."""


# ── questions ─────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class SkillQuestion:
    """A question.

    Attributes:
        id: the split, the seed and the index by which it was drawn.
        kind: of question.
        text: the question as it is asked.
        skills: the names of its skills, in order.
        wordings: the instruction of each skill, as the text has it.
        items: the list that it starts from.
    """

    id: str
    kind: str
    text: str
    skills: tuple[str, ...]
    wordings: tuple[str, ...]
    items: Items

    @property
    def answers(self) -> tuple[str, ...]:
        """The right answer after each skill; the last one is the question's."""
        items = self.items
        answers: list[str] = []
        for name in self.skills:
            items = SKILLS[name].do(items)
            answers.append(write_items(items))
        return tuple(answers)

    def problem(self) -> Problem:
        """Return the question as a problem."""
        return Problem(self.id, self.text, self.answers[-1], "specialists", self.kind)


def write_items(items: Sequence[str]) -> str:
    """Return a list as questions and answers have it."""
    return ", ".join(items)


def write_instruction(wording: str) -> str:
    """Return an instruction as the beginning of a sentence, which a subtask is."""
    return wording[0].upper() + wording[1:]


def draw_question(split: Split, index: int, *, seed: int = 0) -> SkillQuestion:
    """Draw question ``index`` of a split; it depends on nothing but the arguments."""
    name = f"{split}/{seed}/{index}"
    rng = random.Random(f"specialists/{name}")
    kinds = KINDS[split]
    kind = kinds[index % len(kinds)]
    if kind == "single":
        skills = (rng.choice(list(SKILLS)),)
    elif kind == "pair":
        skills = rng.choice(PAIRS)
    else:
        skills = rng.choice(NEW_PAIRS)
    return write_question(skills, split, rng, name=name, kind=kind)


def write_question(
    skills: tuple[str, ...], split: Split, rng: random.Random, *, name: str = "", kind: str = ""
) -> SkillQuestion:
    """Draw a question that asks for these skills in a row."""
    new = "new_" if split == "test" else ""
    wordings = tuple(rng.choice(SKILLS[skill].wordings_of(split)) for skill in skills)
    task = wordings[0]
    if len(wordings) > 1:
        joint = rng.choice(_WORDS[f"{new}joints"])
        task = joint.format(first=wordings[0], second=wordings[1])
    items = _draw_items(rng.choice(_contents(skills)), split, rng)
    frame = rng.choice(_WORDS[f"{new}frames"])
    text = frame.format(task=write_instruction(task), items=write_items(items))
    return SkillQuestion(name, kind, text, skills, wordings, items)


def _contents(skills: tuple[str, ...]) -> tuple[str, ...]:
    """Return the possible contents of a question's list."""
    first = SKILLS[skills[0]].reads
    if skills[0] != "reverse" or len(skills) == 1:
        return first
    # A reversed list has the same contents, which the second skill reads.
    second = SKILLS[skills[1]].reads
    return tuple(contents for contents in first if contents in second)


def _draw_items(contents: str, split: Split, rng: random.Random) -> Items:
    """Draw different items; numbers of the test split have a new one among them."""
    if contents == "nouns":
        return tuple(rng.sample(list(_PLURALS), LENGTH))
    if split == "test":
        new = rng.choice(NEW_NUMBERS)
        others = [number for number in NUMBERS if number != new]
        numbers = [new, *rng.sample(others, LENGTH - 1)]
        rng.shuffle(numbers)
    else:
        numbers = rng.sample(KNOWN_NUMBERS, LENGTH)
    if contents == "number words":
        return tuple(_NAMES[number] for number in numbers)
    return tuple(numbers)


def _split(name: str) -> Split:
    return "test" if name == "test" else "train"


class SpecialistsTask(Benchmark):
    """Drawn questions, the kinds in turn; ``limit`` None: as many as ``COUNTS`` says.

    Raises:
        ConfigError: a limit below 1, or no such split.
    """

    def __init__(
        self, *, limit: int | None = None, seed: int | None = None, split: str = "test"
    ) -> None:
        about = "drawn questions of one skill and of two in a row, for workers with one skill each"
        super().__init__(
            "specialists", about, ("test", "train"), ExactGrader(), split=split, limit=limit
        )
        self._limit = limit
        self._seed = seed or 0

    def draw_subtasks(self, problem: Problem, rng: random.Random) -> Sequence[str]:
        """Return an instruction for each skill of a question, in any of the known wordings."""
        split, seed, index = problem.id.split("/")
        question = draw_question(_split(split), int(index), seed=int(seed))
        return [write_instruction(rng.choice(SKILLS[name].wordings)) for name in question.skills]

    def _read(self, split: str) -> Loaded:
        count = self._limit or COUNTS[_split(split)]
        items: list[Item] = []
        for index in range(count):
            question = draw_question(_split(split), index, seed=self._seed)
            subject = ", then ".join(question.skills)
            items.append(Item(question.problem(), question.answers[-1], subject))
        note = f"{count} questions drawn with seed {self._seed}"
        source = Source(
            "drawn", split, pinned=True, licence="Apache-2.0", problems=len(items), notes=(note,)
        )
        return Loaded(tuple(items), source)
