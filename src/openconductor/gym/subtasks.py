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
from openconductor.gym.world import COMPARE, Operation, Skill, perform

NOTHING = "do nothing"
"""A subtask that no worker of the gym understands: each says that it could not do that."""

Visible = tuple[tuple[int, ...], ...]
"""For each step the earlier steps that it sees, in order."""

Label = tuple[Skill, int]
Option = tuple[Label, ...] | str
"""What a step is told: operations by label, in order, or one of the texts ``COMPARE[0]`` and ``NOTHING``."""


def best_subtasks(question: GymQuestion, workers: Sequence[Profile], access: Visible) -> tuple[tuple[str, ...], float]:
    """The best subtask of each step, and the expected accuracy that they lead to; all frames are tried."""
    shape = shape_of(question)
    if shape not in _MODELS:
        _MODELS[shape] = _Model(question)
    accuracy, steps, options = -1.0, (), ()
    for frame in _frames(access):
        found, told = _MODELS[shape].best(frame, tuple(workers[index] for index in frame.steps))
        if found > accuracy + 1e-12:
            accuracy, steps, options = found, frame.steps, told
    named = _named(question)
    plan = [NOTHING] * len(workers)
    for index, option in zip(steps, options, strict=True):
        plan[index] = _text(option, named, workers[index])
    return tuple(plan), max(accuracy, 0.0) * (1 - REFUSES) ** len(plan)


# --- shapes: what the chances depend on -------------------------------------------------------------------------------
Shape = tuple[frozenset[tuple[Label, ...]], bool]
"""All questions of one shape are alike to the workers: same skills, same orders to the answer; smudged or not."""


def _named(question: GymQuestion) -> dict[Label, Operation]:
    """The operations by names that do not depend on which of its skill's operations one is."""
    operations = [operation for operation, _ in question.operations]
    skills = [operation.skill for operation in operations]
    return {(one.skill, skills[:index].count(one.skill)): one for index, one in enumerate(operations)}


@lru_cache(maxsize=65536)
def shape_of(question: GymQuestion) -> Shape:
    """The shape of a question; the orders that lead to the answer are found by trying them on its list."""
    named = _named(question)
    orders = (
        order
        for order in permutations(named)
        if perform((named[label] for label in order), question.value) == question.answer
    )
    return frozenset(orders), question.smudged


# --- frames: who does what kind of thing ------------------------------------------------------------------------------

_Stands = frozenset[frozenset[Label]]
_Chances = dict[tuple[Seen, ...], float]


@dataclass(frozen=True, slots=True)
class _Frame:
    """What the steps do, but for which operations: the steps that do something, and what each uses.

    Attributes:
        steps: the steps that do something; all others are told nothing.
        compares: for each of these, whether it compares; else it continues from the one response that it uses, or from
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
            # A worker continues from the last response that it sees, whatever that is.
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
            used = tuple(tuple(map(steps.index, uses[index])) for index in steps)
            frames.append(_Frame(steps, tuple(modes[index] == "c" for index in steps), used))
    return tuple(frames)


def _text(option: Option, named: Mapping[Label, Operation], profile: Profile) -> str:
    if isinstance(option, str):
        return option
    return ", then ".join(profile.best_phrase(named[label])[1] for label in option)


class _Model:
    """One shape's workers: their outcomes and the best options of each frame, computed once each."""

    def __init__(self, question: GymQuestion) -> None:
        self._question = question
        self._answer = question.answer
        self._named = _named(question)
        self._everything = frozenset(self._named)
        self._outcomes: dict[tuple[object, ...], list[tuple[float, Seen]]] = {}
        self._rights: dict[tuple[object, ...], float] = {}
        self._best: dict[tuple[object, ...], tuple[float, tuple[Option, ...]]] = {}
        self._ways: dict[frozenset[Label], dict[frozenset[Label], tuple[Label, ...]]] = {}
        for order in sorted(shape_of(question)[0]):
            for start, end in combinations(range(len(order) + 1), 2):
                done, after = frozenset(order[:start]), frozenset(order[:end])
                self._ways.setdefault(done, {}).setdefault(after, order[start:end])

    def best(self, frame: _Frame, workers: tuple[Profile, ...]) -> tuple[float, tuple[Option, ...]]:
        """The best options for a frame and its workers, and the accuracy where nobody declines."""
        compares, uses = frame.compares, frame.uses
        key = (compares, uses, tuple(worker.name for worker in workers))
        if key in self._best:
            return self._best[key]
        last = len(uses) - 1
        # From this step on the responses are only candidates for the last step, and are kept as a bag.
        bag = 1 + max((index for index in range(last) if uses[index]), default=-1) if compares[last] else last + 1
        final_use = [max((later for later in range(last + 1) if i in uses[later]), default=i) for i in range(last + 1)]
        goes_on = [False] * (last + 1)  # whether work may continue from this step's response
        for index in reversed(range(last + 1)):
            for earlier in uses[index]:
                goes_on[earlier] |= goes_on[index] or not compares[index]
        best: tuple[float, tuple[Option, ...]] = (0.0, (NOTHING,) * (last + 1))
        # Depth first: (options until now, what each response stands for when it is right, chances of the responses).
        stack: list[tuple[tuple[Option, ...], tuple[_Stands, ...], _Chances]] = [((), (), {(): 1.0})]
        while stack:
            options, stands, chances = stack.pop()
            index = len(options)
            used, worker = uses[index], workers[index]
            for option, stand in self._options([stands[i] for i in used], compares[index], goes_on[index]):
                if index == last:
                    if self._everything in stand:
                        accuracy = self._right(worker, option, None if bag <= last else used, chances)
                        if accuracy > best[0] + 1e-12:
                            best = (accuracy, (*options, option))
                    continue
                after: _Chances = {}
                for responses, weight in chances.items():
                    # In the bag steps use nothing, so that no place in it is ever looked up.
                    shown = tuple(responses[earlier] for earlier in used)
                    for chance, response in self._results(worker, option, shown, index):
                        both = (*responses, response)
                        if index + 1 > bag:
                            kept = self._bag(both)
                        elif index + 1 == bag:
                            kept = self._bag(tuple(both[earlier] for earlier in uses[last] if earlier <= index))
                        else:
                            kept = tuple(both[i] if final_use[i] > index else None for i in range(index + 1))
                        after[kept] = after.get(kept, 0.0) + weight * chance
                stack.append(((*options, option), (*stands, stand), after))
        self._best[key] = best
        return best

    def _options(self, used: Sequence[_Stands], compares: bool, goes_on: bool) -> list[tuple[Option, _Stands]]:
        """What a step may be told, each with the sets of operations that its response may then stand for.

        A step from which no work goes on does all that is left: what is not the answer never helps a comparison.
        """
        if compares:
            return [(COMPARE[0], frozenset(chain.from_iterable(used)))]
        starts = used[0] if used else frozenset({frozenset[Label]()})
        ways = ((way, end) for start in sorted(starts, key=sorted) for end, way in self._ways.get(start, {}).items())
        return [(way, frozenset({end})) for way, end in ways if goes_on or end == self._everything]

    def _right(self, worker: Profile, option: Option, used: tuple[int, ...] | None, chances: _Chances) -> float:
        """The chance that the last step answers right; it uses these responses, or (None) the whole bag."""
        total = 0.0
        for responses, weight in chances.items():
            shown = responses if used is None else tuple(responses[earlier] for earlier in used)
            key = (worker.name, option, shown)
            if key not in self._rights:
                results = self._results(worker, option, shown, -1)
                self._rights[key] = sum(chance for chance, response in results if response == self._answer)
            total += weight * self._rights[key]
        return total

    def _bag(self, responses: tuple[Seen, ...]) -> tuple[Seen, ...]:
        """Candidates in a canonical order; of wrong ones only counts how many agree, so each becomes a stand-in."""
        counts = Counter(response for response in responses if response is not None)
        candidates = [self._answer] * counts.pop(self._answer, 0)
        for index, count in enumerate(sorted(counts.values())):
            candidates += [(f"stand-in {index}",)] * count
        return tuple(candidates)

    def _results(self, worker: Profile, option: Option, used: tuple[Seen, ...], index: int) -> list[tuple[float, Seen]]:
        key = (worker.name, option, used, index)
        if key not in self._outcomes:
            view = View(self._question, _text(option, self._named, worker), used, index)
            self._outcomes[key] = [(chance, seen) for chance, seen, _ in outcomes(worker, view) if chance > 0]
        return self._outcomes[key]


_MODELS: dict[Shape, _Model] = {}
