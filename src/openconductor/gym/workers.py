"""The gym's eight workers: fallible, complementary, and blind to all but the text they are sent.

``outcomes`` is the one place that says how a worker behaves: the simulation draws from it, the
exact levels sum over it. A draw is keyed by (seed, question, sample, round, step, attempt), never
by the order of calls.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from openconductor.calls.cards import Count, write_card
from openconductor.errors import ConfigError, Refused
from openconductor.gym.bundled import bundled_folder
from openconductor.gym.questions import GymQuestion, read_question
from openconductor.gym.world import (
    COMPARE,
    OPERATIONS,
    SKILLS,
    WORDINGS,
    Operation,
    Skill,
    Value,
    Wording,
    asks_to_compare,
    find_operations,
    perform,
    read_value,
    write_value,
)
from openconductor.pool import Worker, WorkerPool
from openconductor.protocols import CallContext, OnText, Provider
from openconductor.types import Completion, Message, Price, Sampling, Usage

LOST = "Sorry, I could not do that."
VISIBLE = 0.6
"""The share of failures that a worker admits; the others look like an answer."""
FURTHER = 0.6
"""A factor on success for each further operation in one subtask."""
MISREAD = 0.6
"""The chance that a reading of a smudged list goes wrong, unnoticed."""
SPOTS = 0.7
"""The chance that a referee without a majority recognises what is right and what is wrong."""
STEPS = 5
"""The steps of a round whose mistakes all differ."""
REFUSES = 0.03
"""The chance that a call is declined, which ends the episode: needless steps cost answers."""
REFEREE = 0.94
"""The chance that a referee's own work does not fail."""
COMPARES = 0.85
"""The same for a worker that is no referee: it can count votes, and checks nothing."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A worker's chances: success by skill, in the wording that it likes; else times a factor."""

    name: str
    description: str
    skills: Mapping[Skill, float]
    likes: Wording | None
    dislike: float
    price: Price
    seconds: float
    referee: bool = False

    def success(self, operation: Operation, wording: Wording) -> float:
        """Return the chance that this worker gets one operation right."""
        chance = self.skills[operation.skill]
        return chance if self.likes in (None, wording) else chance * self.dislike

    def best_phrase(self, operation: Operation) -> tuple[float, str]:
        """Return its highest chance of success at an operation, and the phrase that asks for it."""
        wording = max(WORDINGS, key=lambda wording: self.success(operation, wording))
        return self.success(operation, wording), operation.phrase(wording)


def _skills(other: float, **own: float) -> Mapping[Skill, float]:
    return {skill: own.get(skill, other) for skill in SKILLS}


def _price(input_: str, output: str) -> Price:
    return Price(Decimal(input_), Decimal(output))


PROFILES: tuple[Profile, ...] = (
    Profile(
        "maven",
        "generalist, good if asked formally",
        _skills(0.45),
        "formal",
        0.3,
        _price("3", "15"),
        2.0,
    ),
    Profile("counter", "sums", _skills(0.1, sums=0.97), "plain", 0.5, _price("1", "4"), 0.8),
    Profile(
        "novice",
        "cheap and weak at everything",
        _skills(0.2),
        None,
        1.0,
        _price("0.02", "0.05"),
        0.2,
    ),
    Profile(
        "lister", "order of lists", _skills(0.1, order=0.97), "formal", 0.5, _price("1", "4"), 0.9
    ),
    Profile(
        "referee",
        "compares answers",
        _skills(0.1),
        None,
        1.0,
        _price("1.5", "6"),
        1.0,
        referee=True,
    ),
    Profile(
        "scribe",
        "ways of writing",
        _skills(0.1, writing=0.97),
        "formal",
        0.5,
        _price("0.8", "3"),
        1.1,
    ),
    Profile("jack", "cheap all-rounder", _skills(0.35), None, 1.0, _price("0.1", "0.4"), 0.5),
    Profile("converter", "units", _skills(0.1, units=0.97), "plain", 0.5, _price("1", "4"), 0.7),
)


Seen = Value | None
"""A response as a value. None: it is no value."""


class Likely(NamedTuple):
    """A possible answer and its chance; one mistake stands for the many that are alike."""

    chance: float
    seen: Seen
    mistake: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """All that a worker reads: the question, its instruction, the responses before it in order."""

    question: GymQuestion
    instruction: str
    seen: tuple[Seen, ...]
    step: int  # STEPS further on in each round


def outcomes(profile: Profile, view: View) -> list[Likely]:
    """Return what the worker may answer, each with its chance; the chances add up to 1.

    A worker works on the last response that it sees, or on the question's list when it sees none.
    """
    if asks_to_compare(view.instruction):
        if profile.referee:
            return _compare(view, spots=SPOTS, steady=REFEREE)
        return _compare(view, spots=0.0, steady=COMPARES)
    operations = find_operations(view.instruction)
    if not operations:
        return [Likely(1.0, None)]
    chance = FURTHER ** (len(operations) - 1)
    for operation, wording in operations:
        chance *= profile.success(operation, wording)
    start = view.seen[-1] if view.seen else view.question.value
    done = perform((operation for operation, _ in operations), start)
    if done is None:
        return [Likely(1.0, None)]
    if view.seen or not view.question.smudged:
        return _with_failures(chance, done, view)
    well_read = _with_failures(chance, done, view, 1 - MISREAD)
    _, *failures = _with_failures(chance, done, view, MISREAD)
    misread = Likely(MISREAD * chance, mistaken(view), mistake=True)
    return [*well_read, misread, *failures]


def right_chance(profile: Profile, view: View) -> float:
    """Return the chance that the worker, unless it declines, answers the question."""
    answer = view.question.answer
    likely = outcomes(profile, view)
    return sum(outcome.chance for outcome in likely if outcome.seen == answer)


def _with_failures(chance: float, done: Value, view: View, weight: float = 1.0) -> list[Likely]:
    """Return success, an admitted failure, and a failure that looks like an answer.

    ``weight`` is the chance of all three together.
    """
    failed = weight * (1 - chance)
    return [
        Likely(weight * chance, done),
        Likely(failed * VISIBLE, None),
        Likely(failed * (1 - VISIBLE), mistaken(view), mistake=True),
    ]


def _compare(view: View, *, spots: float, steady: float) -> list[Likely]:
    """Return the majority of the answers; else the recognised candidate, or any candidate.

    ``spots`` is the chance to recognise what is right and what is wrong, ``steady`` the chance that
    the work itself succeeds.
    """
    candidates = [candidate for candidate in view.seen if candidate is not None]
    if not candidates:
        return [Likely(1.0, None)]
    (first, votes), *others = Counter(candidates).most_common(2)
    if votes > (others[0][1] if others else 1):
        return _with_failures(steady, first, view)
    right = view.question.answer
    if right in candidates:
        likely = _with_failures(steady, right, view, spots)
    else:
        likely = [Likely(spots, None)]
    guessed = (1 - spots) / len(candidates)
    for candidate in candidates:
        likely += _with_failures(steady, candidate, view, guessed)
    return likely


class SimulatedWorker(Provider):
    """A worker of the gym as a Provider; ``seed`` keys its draws."""

    repeatable = True

    def __init__(self, profile: Profile, seed: int = 0) -> None:
        self.profile = profile
        self.seed = seed
        name = profile.name
        if profile not in PROFILES:  # a journal must tell the worlds apart
            digest = blake2b(repr(profile).encode(), digest_size=8).hexdigest()
            name += f" ({digest})"
        self.identity = f"gym {name} {seed}"

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Answer from the text of the turns alone."""
        text = self._answer(messages, call)
        usage = Usage(
            input_tokens=sum(len(message.content.split()) for message in messages),
            output_tokens=len((text or "").split()),
            seconds=self.profile.seconds,
        )
        if text is None:
            raise Refused("declined the request", worker=self.profile.name, usage=usage)
        if on_text is not None:
            on_text(text)
        return Completion(text, usage=usage)

    def _answer(self, messages: Sequence[Message], call: CallContext) -> str | None:
        """Return the text of the answer. None: the worker declines."""
        users = [message.content for message in messages if message.role == "user"] or [""]
        first = users[0].split("\n\n", 1)[0]
        instruction = users[-1].rsplit("\n\n", 1)[-1]
        question = read_question(first)
        if question is None:
            return LOST
        step = call.step or 0
        key = f"{self.seed}/{first}/{call.sample}/{call.round}/{step}/{call.attempt}"
        draw = blake2b(key.encode(), digest_size=24, person=b"gym-draw").digest()
        if _fraction(draw[16:]) < REFUSES:
            return None
        replies = [message.content for message in messages if message.role == "assistant"]
        seen = tuple(map(read_value, replies))
        view = View(question, instruction, seen, STEPS * call.round + step)
        outcome = _pick(outcomes(self.profile, view), _fraction(draw[:8]))
        answer = outcome.seen
        if outcome.mistake:
            answer = mistaken(view, int.from_bytes(draw[8:16], "big"))
        return LOST if answer is None else write_value(answer)


def _fraction(digest: bytes) -> float:
    """Return eight random bytes as a number in [0, 1)."""
    return int.from_bytes(digest, "big") / 2**64


def _pick(likely: Sequence[Likely], point: float) -> Likely:
    """Return the outcome in which the point falls; the last one where rounding leaves a rest."""
    for outcome in likely:
        point -= outcome.chance
        if point < 0:
            return outcome
    return likely[-1]


def mistaken(view: View, draw: int = 0) -> Value:
    """Return a plausible wrong value: the work done on a list in which one item was misread.

    ``draw`` says which item, and by how much; what can be made of them is the same, so 0 stands for
    all. The size of the slip carries the step, so that mistakes of different steps, and of four
    rounds, do not agree by chance.
    """
    seen = view.seen[-1] if view.seen else None
    start = view.question.value if seen is None else seen
    index = draw % len(start)
    item = start[index]
    slip = f"x{item}"
    if item.isdigit():
        rounds, step = divmod(view.step, STEPS)
        number = (draw // 64 + rounds) % 4
        slip = str(int(item) + 1 + step + STEPS * number)
    wrong = (*start[:index], slip, *start[index + 1 :])
    if asks_to_compare(view.instruction):
        return wrong
    operations = (operation for operation, _ in find_operations(view.instruction))
    return perform(operations, wrong) or wrong


DRAWN = "drawn"
"""The world whose workers are drawn anew for each question."""
World = int | str
"""A number: the same workers in other places. A text: other workers, drawn by it."""
COMPARING = "compare"
CATEGORIES = (*(f"{skill} {wording}" for skill in SKILLS for wording in WORDINGS), COMPARING)
"""The categories on the workers' cards."""
PROBED = 50
"""The questions of each category from which a card is made."""


def world_of(pool: str) -> World | None:
    """Return the world that a pool's name names. None: it is not the gym's.

    ``gym`` is world 0, ``gym:7`` world 7, ``gym:drawn`` other workers for each question,
    ``gym:drawn:7`` drawn workers.

    Raises:
        ConfigError: the world is unknown.
    """
    name, colon, number = pool.partition(":")
    if name != "gym":
        return None
    if re.fullmatch(rf"{DRAWN}(:[0-9]+)?", number):
        return number
    if colon and not (number.isascii() and number.isdigit()):
        raise ConfigError(
            f"pool {pool!r}: got world {number!r}, expected a whole number, as in 'gym:7', "
            f"or {DRAWN}"
        )
    return int(number or 0)


@lru_cache(maxsize=4096)
def profiles_of(world: World) -> tuple[Profile, ...]:
    """Return the workers of a world.

    World 0 is ``PROFILES``. Any other number has the same workers in other places, who like other
    wordings. A text draws other workers, each by itself: good at one skill or two, a little good at
    all, or a referee.
    """
    if not world:
        return PROFILES
    if isinstance(world, str):
        return tuple(_drawn_worker(world, number) for number in range(len(PROFILES)))
    rng = random.Random(f"world/{world}")
    profiles: list[Profile] = []
    for profile in rng.sample(PROFILES, len(PROFILES)):
        likes = rng.choice(WORDINGS) if profile.likes else None
        profiles.append(replace(profile, likes=likes))
    return tuple(profiles)


def _drawn_worker(world: str, number: int) -> Profile:
    rng = random.Random(f"worker/{world}/{number}")
    shape = rng.choices(("one", "two", "all", "referee"), (0.4, 0.2, 0.25, 0.15))[0]
    level = rng.uniform(0.2, 0.5) if shape == "all" else rng.uniform(0.75, 0.98)
    own = {"one": 1, "two": 2, "all": len(SKILLS), "referee": 0}[shape]
    dollars = 10 ** rng.uniform(-1, 1)
    price = Decimal(str(round(dollars, 2)))
    return Profile(
        name=f"worker-{number}",
        description=shape,
        skills=_skills(0.1, **dict.fromkeys(rng.sample(SKILLS, own), level)),
        likes=rng.choice((*WORDINGS, None)),
        dislike=rng.uniform(0.3, 0.6),
        price=Price(price, 4 * price),
        seconds=rng.uniform(0.3, 2.0),
        referee=shape == "referee",
    )


def _card(profile: Profile, rng: random.Random) -> str:
    """Return the card that a probe of ``PROBED`` questions of each category makes of a worker."""
    # The probe compares a right answer with a wrong one, which no slip makes right.
    right = ("9", "17", "4")
    wrong = ("1", "17", "4")
    chances = {COMPARING: _chance(profile, "turn it around", COMPARE[0], (right, wrong))}
    for operation in OPERATIONS.values():
        for wording in WORDINGS:
            category = f"{operation.skill} {wording}"
            chances[category] = _chance(profile, operation.phrase(wording))
    counts: dict[str, Count] = {}
    for category, chance in chances.items():
        solved = sum(rng.random() < chance for _ in range(PROBED))
        counts[category] = Count(solved, PROBED)
    return write_card(counts, step=10)


def _chance(
    profile: Profile, asked: str, instruction: str = "", seen: tuple[Seen, ...] = ()
) -> float:
    """Return the chance that a worker answers a question of one operation."""
    question = read_question(f"Take 4 17 9, {asked}.")
    assert question is not None
    return right_chance(profile, View(question, instruction or asked, seen, 0))


def gym_pool(seed: int = 0, world: World = 0) -> WorkerPool:
    """Return the eight workers of a world, with cards; the same seed draws the same answers."""
    workers: list[Worker] = []
    profiles = profiles_of(world)
    for profile, card in zip(profiles, _cards(seed, world), strict=True):
        provider = SimulatedWorker(profile, seed)
        workers.append(Worker(provider, name=profile.name, description=card, price=profile.price))
    return WorkerPool(workers)


@lru_cache(maxsize=4096)
def _cards(seed: int, world: World) -> tuple[str, ...]:
    rng = random.Random(f"cards/{seed}/{world}")
    return tuple(_card(profile, rng) for profile in profiles_of(world))


@dataclass(frozen=True, slots=True)
class GymPool:
    """The gym's workers as the pool that a name names."""

    world: World

    @property
    def redrawn(self) -> bool:
        """True if each question gets workers of its own."""
        return self.world == DRAWN

    @property
    def conductor(self) -> Path:
        """The folder of the Conductor that was trained for this pool and ships with the package."""
        return bundled_folder()

    def draw(self, seed: int = 0, key: str = "") -> WorkerPool:
        """Return the workers; ``key`` draws those of one question, where they are redrawn."""
        if self.redrawn and key:
            return gym_pool(seed, f"{seed}/{key}")
        return gym_pool(seed, self.world)


def read_pool(name: str) -> GymPool:
    """Return the pool that a name such as ``gym:7`` names.

    Raises:
        ConfigError: the world is unknown.
    """
    world = world_of(name)
    assert world is not None
    return GymPool(world)
