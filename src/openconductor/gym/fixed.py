"""The best fixed workflow: one choice of workers and access for every question, its subtasks as good as they can be.

In: a question. Out: the workflow of a constant (who works, who sees whom) with the best subtasks for that question, and
its exact expected accuracy; and reference levels over many questions. ``python -m openconductor.gym.fixed`` searches for
the best constant; what it found stands here as ``BEST_FIXED``.

*Best subtasks* are the best of all assignments in which each step is told to do one or more of the question's
operations, in any order that leads to the answer and in the wording that its worker likes, or to compare the answers,
or nothing that anybody understands. So this level knows everything but whom to ask, and how many: that it fixes.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations, permutations, product

from openconductor.gym.exact import ALL, Offered, expected_accuracy
from openconductor.gym.questions import KINDS, OPENERS, SMUDGED, SPLITS, GymQuestion, compositions, read_question
from openconductor.gym.workers import Mistake, Profile, Seen, View, outcomes
from openconductor.gym.world import COMPARE, OPERATIONS, WORDINGS, Operation, Skill, Wording, is_numeric
from openconductor.types import Step, Workflow

NOTHING = "do nothing"
"""A subtask that no worker of the gym understands; all answer that they could not do that."""

Visible = tuple[tuple[int, ...], ...]
Label = tuple[Skill, int]
Option = tuple[Label, ...] | str
"""What a step is told: labels of operations in order, or one of the texts ``COMPARE[0]`` and ``NOTHING``."""


@dataclass(frozen=True, slots=True)
class Constant:
    """Who works and who sees whom, the same for every question: one ordinal and one tuple of earlier steps a step."""

    workers: tuple[int, ...]
    access: Visible


BEST_FIXED = Constant(workers=(0,), access=((),))
"""The best constant over the gym's eight workers: found by ``search``, which see for how far that is a proof."""


def fixed_workflow(question: GymQuestion, constant: Constant = BEST_FIXED, offered: Offered = ALL) -> Workflow:
    """The constant's workflow for a question, with its best subtasks."""
    _, plan = _best_plan(question, constant, offered)
    named = dict(zip(_labels(question), (operation for operation, _ in question.operations), strict=True))
    steps = zip(constant.workers, plan, constant.access, strict=True)
    return Workflow(tuple(Step(worker, _text(option, named, offered[worker]), seen) for worker, option, seen in steps))


def fixed_accuracy(question: GymQuestion, constant: Constant = BEST_FIXED, offered: Offered = ALL) -> float:
    """The expected accuracy of ``fixed_workflow``, exact."""
    return _best_plan(question, constant, offered)[0]


def mean_accuracy(constant: Constant, *, at_least: float = 0.0) -> float:
    """The expected accuracy over the gym's questions: the four kinds alike, and within a kind all compositions alike.

    Where that must come out below ``at_least``, the summing stops early with some number below it.
    """
    total, rest = 0.0, 1.0
    for question, weight in representatives():
        total += weight * fixed_accuracy(question, constant)
        rest -= weight
        if total + rest < at_least:
            break
    return total


# --- shapes: what the chances depend on -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Shape:
    """All questions of one shape are alike to the workers: same skills, same orders that lead to the answer."""

    orders: frozenset[tuple[Label, ...]]
    smudged: bool


def _labels(question: GymQuestion) -> tuple[Label, ...]:
    """A name for each operation that does not depend on which of its skill's operations it is."""
    skills = [operation.skill for operation, _ in question.operations]
    return tuple((skill, skills[:index].count(skill)) for index, skill in enumerate(skills))


@lru_cache(maxsize=65536)
def _shape(question: GymQuestion) -> _Shape:
    named = zip(_labels(question), (operation for operation, _ in question.operations), strict=True)
    orders = (
        tuple(label for label, _ in order)
        for order in permutations(named)
        if _outcome(question, [operation for _, operation in order]) == question.answer
    )
    return _Shape(frozenset(orders), question.smudged)


def _outcome(question: GymQuestion, operations: Sequence[Operation]) -> Seen:
    value = question.value
    for operation in operations:
        if operation.numeric and not is_numeric(value):
            return None
        value = operation.apply(value)
    return value


@lru_cache
def representatives() -> tuple[tuple[GymQuestion, float], ...]:
    """One question for each shape that the gym asks, with its share of all; the heaviest first."""
    value = "17 4 62 9 35"  # no two orders of operations agree on it by chance (tested)
    weights: dict[_Shape, tuple[GymQuestion, float]] = {}
    for kind in KINDS:
        length = 1 if kind == "smudged" else ("single", "pair", "triple").index(kind) + 1
        asked = {names for split in SPLITS for names in compositions(length, split)}
        subject = f"{SMUDGED} {value}" if kind == "smudged" else value
        for names in sorted(asked):
            phrases = ", then ".join(OPERATIONS[name].formal for name in names)
            question = read_question(f"{OPENERS[0]} {subject}, {phrases}.")
            assert question is not None
            first, weight = weights.get(_shape(question), (question, 0.0))
            weights[_shape(question)] = (first, weight + 1 / len(KINDS) / len(asked))
    return tuple(sorted(weights.values(), key=lambda entry: -entry[1]))


# --- the best subtasks of a constant ----------------------------------------------------------------------------------

_PLANS: dict[tuple[object, ...], tuple[float, tuple[Option, ...]]] = {}
_MODELS: dict[_Shape, _Model] = {}


def _best_plan(question: GymQuestion, constant: Constant, offered: Offered) -> tuple[float, tuple[Option, ...]]:
    """The best options for a constant, cached by what they depend on: the shape, and each worker's skill at it."""
    shape = _shape(question)
    if shape not in _MODELS:
        _MODELS[shape] = _Model(question)
    model = _MODELS[shape]
    kept, visible = _useful(constant, offered)
    profiles = [offered[constant.workers[index]] for index in kept]
    key = (shape, visible, tuple(model.skill(profile) for profile in profiles))
    if key not in _PLANS:
        _PLANS[key] = model.best(profiles, visible)
    accuracy, options = _PLANS[key]
    plan: list[Option] = [NOTHING] * len(constant.workers)
    for index, option in zip(kept, options, strict=True):
        plan[index] = option
    return accuracy, tuple(plan)


def _useful(constant: Constant, offered: Offered) -> tuple[tuple[int, ...], Visible]:
    """The steps that can reach the answer, and what they really use: a worker goes on from the last response that it
    sees, and only a referee can compare all of them."""
    last = len(constant.workers) - 1
    used = {
        index: seen if offered[worker].referee else seen[-1:]
        for index, (worker, seen) in enumerate(zip(constant.workers, constant.access, strict=True))
    }
    needed = {last}
    for index in range(last, -1, -1):
        if index in needed:
            needed.update(used[index])
    kept = tuple(sorted(needed))
    place = {index: new for new, index in enumerate(kept)}
    return kept, tuple(tuple(place[seen] for seen in used[index]) for index in kept)


def _best_wording(operation: Operation, profile: Profile) -> Wording:
    return max(WORDINGS, key=lambda wording: profile.success(operation, wording))


def _text(option: Option, named: Mapping[Label, Operation], profile: Profile) -> str:
    if isinstance(option, str):
        return option
    return ", then ".join(named[label].phrase(_best_wording(named[label], profile)) for label in option)


_Stands = frozenset[frozenset[Label]]
_Chances = dict[tuple[int, ...], float]
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
        self._outcomes: dict[tuple[object, ...], list[tuple[float, int]]] = {}
        self._ways: dict[frozenset[Label], dict[frozenset[Label], tuple[Label, ...]]] = {}
        for order in sorted(_shape(question).orders):
            for start, end in combinations(range(len(order) + 1), 2):
                done, after = frozenset(order[:start]), frozenset(order[:end])
                self._ways.setdefault(done, {}).setdefault(after, order[start:end])

    def skill(self, profile: Profile) -> tuple[object, ...]:
        """What tells workers apart on this shape."""
        chances = (profile.success(item, _best_wording(item, profile)) for item in self._named.values())
        return (profile.referee, *chances)

    def best(self, profiles: Sequence[Profile], visible: Visible) -> tuple[float, tuple[Option, ...]]:
        """The best options for workers of which each sees what ``visible`` says, and their expected accuracy."""
        last = len(profiles) - 1
        compares = profiles[last].referee and bool(visible[last])
        # From this step on the responses are only candidates for the last step, and are kept as a bag.
        bag = last + 1 if not compares else 1 + max((index for index in range(last) if visible[index]), default=-1)
        final_use = [max((later for later in range(last + 1) if i in visible[later]), default=i) for i in range(last + 1)]
        best: tuple[float, tuple[Option, ...]] = (0.0, (NOTHING,) * len(profiles))
        # Depth first: (options until now, what each response stands for when it is right, chances of the responses).
        stack: list[tuple[tuple[Option, ...], tuple[_Stands, ...], _Chances]] = [((), (), {(): 1.0})]
        while stack:
            options, stands, chances = stack.pop()
            index = len(options)
            seen, profile = visible[index], profiles[index]
            if index == last:
                for option, stand in self._options(profile, [stands[earlier] for earlier in seen]):
                    if self._everything in stand:
                        shown = None if compares else seen
                        accuracy = self._right(profile, option, shown, chances)
                        if accuracy > best[0] + 1e-12:
                            best = (accuracy, (*options, option))
                continue
            goes_on = any(visible[later][-1:] == (index,) and not profiles[later].referee for later in range(last + 1))
            for option, stand in self._options(profile, [stands[earlier] for earlier in seen], goes_on=goes_on):
                after: _Chances = {}
                for responses, weight in chances.items():
                    shown = tuple(responses[earlier] for earlier in seen)
                    for chance, response in self._results(profile, option, shown, index):
                        both = (*responses, response)
                        if index + 1 > bag:
                            key = self._bag(both)
                        elif index + 1 == bag:
                            key = self._bag(both[earlier] for earlier in visible[last] if earlier <= index)
                        else:
                            key = tuple(_SILENT if final_use[i] <= index else both[i] for i in range(index + 1))
                        after[key] = after.get(key, 0.0) + weight * chance
                stack.append(((*options, option), (*stands, stand), after))
        return best

    def _options(
        self, profile: Profile, seen: Sequence[_Stands], *, goes_on: bool = True
    ) -> list[tuple[Option, _Stands]]:
        """What a step may be told, each with the sets of operations that its response may then stand for.

        A step whose response is only compared (``goes_on`` is false) does the whole, or the part that is likeliest to
        come out: wrong as it is, a referee may see that, and solve the question itself.
        """
        silent: list[tuple[Option, _Stands]] = [(NOTHING, frozenset())]
        if profile.referee and seen:
            return [*silent, (COMPARE[0], frozenset({self._everything, *chain.from_iterable(seen)}))]
        starts = seen[-1] if seen else frozenset({frozenset[Label]()})
        ways = [(way, end) for start in sorted(starts, key=sorted) for end, way in self._ways.get(start, {}).items()]
        if not goes_on:
            parts = [way for way in ways if way[1] != self._everything]
            likeliest = [max(parts, key=lambda way: self._chance(profile, way[0]))] if parts else []
            ways = [way for way in ways if way[1] == self._everything] + likeliest
        return [*silent, *((way, frozenset({end})) for way, end in ways)]

    def _right(
        self, profile: Profile, option: Option, seen: tuple[int, ...] | None, chances: _Chances
    ) -> float:
        """The chance that the last step answers right; it sees these steps, or (None) the whole bag."""
        total = 0.0
        for responses, weight in chances.items():
            shown = responses if seen is None else tuple(responses[earlier] for earlier in seen)
            results = self._results(profile, option, shown, -1)
            total += weight * sum(chance for chance, response in results if response == self._answer)
        return total

    def _bag(self, responses: Iterable[int]) -> tuple[int, ...]:
        """Candidates in a canonical order; of mistakes only counts how many agree, so each gets a stand-in's number."""
        values: list[int] = []
        mistakes: Counter[int] = Counter()
        for number in responses:
            if isinstance(self._responses[number], Mistake):
                mistakes[number] += 1
            elif number != _SILENT:
                values.append(number)
        values.sort()
        for stand_in, count in enumerate(sorted(mistakes.values())):
            values += [self._number(Mistake(-2 - stand_in))] * count
        return tuple(values)

    def _results(self, profile: Profile, option: Option, seen: tuple[int, ...], index: int) -> list[tuple[float, int]]:
        key = (profile.name, option, seen, index)
        if key not in self._outcomes:
            responses = tuple(self._responses[number] for number in seen)
            view = View(self._question, _text(option, self._named, profile), responses, index)
            self._outcomes[key] = [(chance, self._number(result)) for chance, result in outcomes(profile, view)]
        return self._outcomes[key]

    def _chance(self, profile: Profile, way: tuple[Label, ...]) -> float:
        results = self._results(profile, way, (self._number(self._question.value),), -1)
        return max(chance for chance, response in results if isinstance(self._responses[response], tuple))

    def _number(self, response: Seen) -> int:
        if response not in self._numbers:
            self._numbers[response] = len(self._responses)
            self._responses.append(response)
        return self._numbers[response]
