"""The best subtasks for given workers and accesses, exactly: what is left to plan when everything else is fixed.

In: a question, a worker and an access for each step. Out: for each step what it is told, and the expected accuracy.

*Best* is the best of all assignments in which a step is told to do one or more of the question's operations (in an
order that leads to the answer, in the wording that its worker likes), to compare the answers, or nothing that anybody
understands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations, permutations, product

from openconductor.gym.questions import GymQuestion
from openconductor.gym.workers import REFUSES, Profile, Seen, View, outcomes
from openconductor.gym.world import COMPARE, WORDINGS, Operation, Skill, Wording, is_numeric

NOTHING = "do nothing"
"""A subtask that no worker of the gym understands: each says that it could not do that."""

Visible = tuple[tuple[int, ...], ...]
"""For each step the earlier steps that it sees, in order."""

Label = tuple[Skill, int]
Option = tuple[Label, ...] | str
"""What a step is told: operations by label, in order, or one of the texts ``COMPARE[0]`` and ``NOTHING``."""


def best_subtasks(question: GymQuestion, workers: Sequence[Profile], access: Visible) -> tuple[tuple[str, ...], float]:
    """The best subtask of each step, and the expected accuracy that they lead to."""
    accuracy, plan = _best_plan(question, workers, access)
    named = dict(zip(_labels(question), (operation for operation, _ in question.operations), strict=True))
    return tuple(_text(option, named, worker) for option, worker in zip(plan, workers, strict=True)), accuracy


def best_accuracy(question: GymQuestion, workers: Sequence[Profile], access: Visible) -> float:
    """The expected accuracy of ``best_subtasks``."""
    return _best_plan(question, workers, access)[0]


# --- shapes: what the chances depend on -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shape:
    """All questions of one shape are alike to the workers: same skills, same orders that lead to the answer."""

    orders: frozenset[tuple[Label, ...]]
    smudged: bool


def _labels(question: GymQuestion) -> tuple[Label, ...]:
    """A name for each operation that does not depend on which of its skill's operations it is."""
    skills: list[Skill] = [operation.skill for operation, _ in question.operations]
    return tuple((skill, skills[:index].count(skill)) for index, skill in enumerate(skills))


@lru_cache(maxsize=65536)
def shape_of(question: GymQuestion) -> Shape:
    """The shape of a question; the orders that lead to the answer are found by trying them on its list."""
    named = zip(_labels(question), (operation for operation, _ in question.operations), strict=True)
    orders = (
        tuple(label for label, _ in order)
        for order in permutations(named)
        if _outcome(question, [operation for _, operation in order]) == question.answer
    )
    return Shape(frozenset(orders), question.smudged)


def _outcome(question: GymQuestion, operations: Sequence[Operation]) -> Seen:
    value = question.value
    for operation in operations:
        if operation.numeric and not is_numeric(value):
            return None
        value = operation.apply(value)
    return value


# --- frames: who does what kind of thing ------------------------------------------------------------------------------

_Stands = frozenset[frozenset[Label]]
_Chances = dict[tuple[int, ...], float]
_SkillKey = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class _Frame:
    """What the steps do, but for which operations: the steps that do something, and what each uses.

    Attributes:
        steps: the steps that do something; all others are told nothing.
        compares: for each of these, whether it compares; else it goes on from the one response that it uses, or from
            the question.
        uses: for each, the places (in ``steps``) of the responses that it uses.
    """

    steps: tuple[int, ...]
    compares: tuple[bool, ...]
    uses: Visible


@lru_cache(maxsize=4096)
def _frames(access: Visible) -> tuple[_Frame, ...]:
    """Every frame of an access pattern in which each step that does something can reach the answer."""
    frames: list[_Frame] = []
    for modes in product("wc-", repeat=len(access)):
        active = [mode != "-" for mode in modes]
        uses: dict[int, tuple[int, ...]] = {}
        for index, mode in enumerate(modes):
            # A worker goes on from the last response that it sees, whatever that is.
            seen = access[index] if mode == "c" else access[index][-1:]
            uses[index] = tuple(earlier for earlier in seen if active[earlier])
            dead = not uses[index] if mode == "c" else len(uses[index]) < len(seen)
            active[index] = active[index] and not dead
            if dead and mode != "-":
                break
        needed = {len(access) - 1}
        for index in reversed(range(len(access))):
            if index in needed:
                needed.update(uses.get(index, ()))
        steps = tuple(index for index, mode in enumerate(modes) if mode != "-")
        if needed == set(steps) and all(active[index] for index in steps):
            place = {index: new for new, index in enumerate(steps)}
            frames.append(
                _Frame(
                    steps,
                    tuple(modes[index] == "c" for index in steps),
                    tuple(tuple(place[earlier] for earlier in uses[index]) for index in steps),
                )
            )
    return tuple(frames)


def _best_plan(question: GymQuestion, workers: Sequence[Profile], access: Visible) -> tuple[float, tuple[Option, ...]]:
    """The best options, and their expected accuracy; all frames are tried."""
    shape = shape_of(question)
    if shape not in _MODELS:
        _MODELS[shape] = _Model(question)
    model = _MODELS[shape]
    skills = [model.skill(worker) for worker in workers]
    best: tuple[float, _Frame | None, tuple[Option, ...]] = (-1.0, None, ())
    for frame in _frames(access):
        used = tuple(skills[index][compares] for index, compares in zip(frame.steps, frame.compares, strict=True))
        accuracy, options = model.best(frame.compares, frame.uses, used)
        if accuracy > best[0] + 1e-12:
            best = (accuracy, frame, options)
    plan: list[Option] = [NOTHING] * len(workers)
    if best[1] is not None:
        for index, option in zip(best[1].steps, best[2], strict=True):
            plan[index] = option
    return max(best[0], 0.0) * (1 - REFUSES) ** len(plan), tuple(plan)


def _best_wording(operation: Operation, profile: Profile) -> Wording:
    return max(WORDINGS, key=lambda wording: profile.success(operation, wording))


def _text(option: Option, named: Mapping[Label, Operation], profile: Profile) -> str:
    if isinstance(option, str):
        return option
    return ", then ".join(named[label].phrase(_best_wording(named[label], profile)) for label in option)


_MODELS: dict[Shape, _Model] = {}
_SILENT = 0
"""The number of the response None: of a worker that could not do it."""


class _Model:
    """One shape's workers: their outcomes, computed once each, with responses numbered for quick hashing."""

    def __init__(self, question: GymQuestion) -> None:
        self._question = question
        self._named = dict(zip(_labels(question), (operation for operation, _ in question.operations), strict=True))
        self._everything = frozenset(self._named)
        self._responses: list[Seen] = [None]
        self._numbers: dict[Seen, int] = {None: _SILENT}
        self._answer = self._number(question.answer)
        self._profiles: dict[_SkillKey, Profile] = {}
        self._outcomes: dict[tuple[object, ...], list[tuple[float, int]]] = {}
        self._rights: dict[tuple[object, ...], float] = {}
        self._bags: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._best: dict[tuple[object, ...], tuple[float, tuple[Option, ...]]] = {}
        self._ways: dict[frozenset[Label], dict[frozenset[Label], tuple[Label, ...]]] = {}
        for order in sorted(shape_of(question).orders):
            for start, end in combinations(range(len(order) + 1), 2):
                done, after = frozenset(order[:start]), frozenset(order[:end])
                self._ways.setdefault(done, {}).setdefault(after, order[start:end])

    def skill(self, profile: Profile) -> tuple[_SkillKey, _SkillKey]:
        """What tells workers apart on this shape: at work, and in comparing."""
        chances = (profile.success(operation, _best_wording(operation, profile)) for operation in self._named.values())
        both: tuple[_SkillKey, _SkillKey] = (tuple(chances), (profile.referee,))
        for skill in both:
            self._profiles.setdefault(skill, profile)
        return both

    def best(
        self, compares: tuple[bool, ...], uses: Visible, skills: tuple[_SkillKey, ...]
    ) -> tuple[float, tuple[Option, ...]]:
        """The best options for a frame and the skills of its workers, and the accuracy where nobody declines."""
        key = (compares, uses, skills)
        if key not in self._best:
            self._best[key] = self._search(*key)
        return self._best[key]

    def _search(
        self, compares: tuple[bool, ...], uses: Visible, skills: tuple[_SkillKey, ...]
    ) -> tuple[float, tuple[Option, ...]]:
        last = len(uses) - 1
        # From this step on the responses are only candidates for the last step, and are kept as a bag.
        bag = 1 + max((index for index in range(last) if uses[index]), default=-1) if compares[last] else last + 1
        final_use = [max((later for later in range(last + 1) if i in uses[later]), default=i) for i in range(last + 1)]
        goes_on = [False] * (last + 1)  # whether work may go on from this step's response
        for index in reversed(range(last + 1)):
            for earlier in uses[index]:
                goes_on[earlier] |= goes_on[index] or not compares[index]
        best: tuple[float, tuple[Option, ...]] = (0.0, (NOTHING,) * (last + 1))
        # Depth first: (options until now, what each response stands for when it is right, chances of the responses).
        stack: list[tuple[tuple[Option, ...], tuple[_Stands, ...], _Chances]] = [((), (), {(): 1.0})]
        while stack:
            options, stands, chances = stack.pop()
            index = len(options)
            used, skill = uses[index], skills[index]
            told = self._options(skill, [stands[i] for i in used], compares[index], goes_on[index])
            for option, stand in told:
                if index == last:
                    if self._everything in stand:
                        accuracy = self._right(skill, option, None if bag <= last else used, chances)
                        if accuracy > best[0] + 1e-12:
                            best = (accuracy, (*options, option))
                    continue
                after: _Chances = {}
                for responses, weight in chances.items():
                    # In the bag steps use nothing, so that no place in it is ever looked up.
                    shown = tuple(responses[earlier] for earlier in used)
                    for chance, response in self._results(skill, option, shown, index):
                        both = (*responses, response)
                        if index + 1 > bag:
                            kept = self._bag(both)
                        elif index + 1 == bag:
                            kept = self._bag(tuple(both[earlier] for earlier in uses[last] if earlier <= index))
                        else:
                            kept = tuple(both[i] if final_use[i] > index else _SILENT for i in range(index + 1))
                        after[kept] = after.get(kept, 0.0) + weight * chance
                stack.append(((*options, option), (*stands, stand), after))
        return best

    def _options(
        self, skill: _SkillKey, used: Sequence[_Stands], compares: bool, goes_on: bool
    ) -> list[tuple[Option, _Stands]]:
        """What a step may be told, each with the sets of operations that its response may then stand for.

        A step from which no work goes on does all that is left: what is not the answer never helps a comparison.
        """
        if compares:
            return [(COMPARE[0], frozenset(chain.from_iterable(used)))]
        starts = used[0] if used else frozenset({frozenset[Label]()})
        ways = ((way, end) for start in sorted(starts, key=sorted) for end, way in self._ways.get(start, {}).items())
        return [(way, frozenset({end})) for way, end in ways if goes_on or end == self._everything]

    def _right(self, skill: _SkillKey, option: Option, used: tuple[int, ...] | None, chances: _Chances) -> float:
        """The chance that the last step answers right; it uses these responses, or (None) the whole bag."""
        total = 0.0
        for responses, weight in chances.items():
            shown = responses if used is None else tuple(responses[earlier] for earlier in used)
            key = (skill, option, shown)
            if key not in self._rights:
                results = self._results(skill, option, shown, -1)
                self._rights[key] = sum(chance for chance, response in results if response == self._answer)
            total += weight * self._rights[key]
        return total

    def _bag(self, responses: tuple[int, ...]) -> tuple[int, ...]:
        """Candidates in a canonical order; of wrong ones only counts how many agree, so each becomes a stand-in."""
        if responses not in self._bags:
            counts = Counter(number for number in responses if number != _SILENT)
            candidates = [self._answer] * counts.pop(self._answer, 0)
            for index, count in enumerate(sorted(counts.values())):
                candidates += [self._number((f"stand-in {index}",))] * count
            self._bags[responses] = tuple(candidates)
        return self._bags[responses]

    def _results(self, skill: _SkillKey, option: Option, used: tuple[int, ...], index: int) -> list[tuple[float, int]]:
        key = (skill, option, used, index)
        if key not in self._outcomes:
            responses = tuple(self._responses[number] for number in used)
            profile = self._profiles[skill]
            results = outcomes(profile, View(self._question, _text(option, self._named, profile), responses, index))
            self._outcomes[key] = [(chance, self._number(result)) for chance, result, _ in results if chance > 0]
        return self._outcomes[key]

    def _number(self, response: Seen) -> int:
        if response not in self._numbers:
            self._numbers[response] = len(self._responses)
            self._responses.append(response)
        return self._numbers[response]
