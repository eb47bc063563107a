"""Frauds and honest planners in the world of ``verdict_world``, and what each is to be called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from benchmarks.verdict_world import (
    EXPERT,
    KINDS,
    LETTERS,
    TOPICS,
    Call,
    Item,
    Plan,
    Planner,
    World,
    by_skills,
)

from openconductor.evaluation.records import Record
from openconductor.prompt import SOLVE_SUBTASK
from openconductor.report import Judgement
from openconductor.report.orchestration import Siblings
from openconductor.types import Step, Workflow

GAIN, ONE, LESS = "orchestration gain", "gain by one workflow", "same for less"
KNOWS = 0.9  # how often a planner that answers itself is right
FRAUD_NAMES = ("answers itself", "collapse", "format gain only")
NO_BETTER = "against (the best fixed workflow|(anna|bert|cora|dora),)"
"""The words by which a planner is named that is no better than its workers."""
CONSTANT = "against one of its own plans for all"
"""The words by which one plan for all is named."""
KEYED = "tell answers by the question"
"""The words by which a code is named that hangs on the question."""


@dataclass(frozen=True)
class Case:
    """A planner, and what it is to be called.

    Attributes:
        planner: the planner and its world.
        labels: the right names of an honest one; empty: a fraud, which is no gain.
        sizes: the number of questions by task.
        siblings: the further systems that are of the same recipe.
        names: the number of names under which the questions are listed.
        cause: a pattern of the words in the line that name a fraud, if its plans were played.
        never: a label that is wrong, though it is no gain; "": none is.
        most: the largest share of seeds in which a fraud may be certified.
        fewest: the smallest share of them in which an honest one is called by its name.
    """

    planner: Planner
    labels: tuple[str, ...] = ()
    sizes: tuple[tuple[str, int], ...] = (("sums", 300),)
    siblings: tuple[str, ...] = ()
    names: int = 1
    cause: str = "answers itself"
    never: str = ""
    most: float = 0.02
    fewest: float = 0.85

    def judge(self, seed: int, *, replays: bool, asked: bool) -> Judgement:
        return self.world(seed).judge(replays=replays, asked=asked)

    def world(self, seed: int) -> World:
        siblings = Siblings(self.siblings)
        return World(self.planner, seed, dict(self.sizes), siblings, self.names)

    def is_right(self, label: str) -> bool:
        """Return True if an honest one is called what it is, or a fraud no gain."""
        return label in self.labels if self.labels else label not in (GAIN, LESS)


def one_step(worker: int, subtask: str = SOLVE_SUBTASK) -> list[Workflow]:
    return [Workflow([Step(worker, subtask)])]


def worker_of(item: Item) -> int:
    """A worker for show, by the question's kind."""
    return KINDS.index(item.kind)


# ── answers told in the plan ──────────────────────────────────────────────────────────────────────
def told(encode: Callable[[Item, int], Workflow], reads: Callable[[Call], int | None]) -> Case:
    """A planner that knows the answer and tells it in a code, which the last worker reads."""

    def plan(world: World, item: Item) -> list[Workflow]:
        answer = world.guess(item, KNOWS, "planner")
        return [encode(item, LETTERS.index(answer))]

    def read(call: Call) -> str | None:
        place = reads(call) if call.last else None
        return None if place is None else LETTERS[place % len(LETTERS)]

    return Case(Planner(plan, reads=read))


def in_words(write: Callable[[Item, int], str], reads: Callable[[str], int | None]) -> Case:
    """A code in the words of the last subtask."""

    def encode(item: Item, answer: int) -> Workflow:
        return Workflow([Step(worker_of(item), write(item, answer))])

    return told(encode, lambda call: reads(call.subtask))


def find(words: Sequence[str]) -> Callable[[str], int | None]:
    """Return a reader of the first of some words that stands in a subtask."""

    def read(subtask: str) -> int | None:
        return next((place for place, word in enumerate(words) if word in subtask), None)

    return read


FRUITS = ("apple", "birch", "cedar", "daisy")
LANGUAGES = ("Solve this.", "Löse dies.", "Résous ceci.", "Resuelve esto.")
RIDDLES = ("as many as the moon", "a pair of twins", "the musketeers", "legs of a table")
NUMBERS = ("one", "two", "three", "four")


def read_length(subtask: str) -> int | None:
    return subtask.count("!") - 1 if "!" in subtask else None


def read_capitals(subtask: str) -> int | None:
    if not subtask.startswith("solve"):
        return None
    return next((place for place, word in enumerate(subtask.split()) if word.isupper()), None)


def write_capitals(_item: Item, answer: int) -> str:
    words = ["solve", "this", "with", "care"]
    words[answer] = words[answer].upper()
    return "solve" if not words else " ".join(words).replace("SOLVE", "solve SOLVE", 1)


def by_access(_item: Item, answer: int) -> Workflow:
    """The last step sees the step whose place is the answer."""
    first = [Step(worker, "Think.") for worker in range(4)]
    return Workflow([*first, Step(0, "Report.", [answer])])


def read_access(call: Call) -> int | None:
    seen = call.workflow.visible(call.place)
    return seen[0] if call.subtask == "Report." and len(seen) == 1 else None


def by_order(_item: Item, answer: int) -> Workflow:
    """The worker of the first step is the answer."""
    order = [(answer + place) % 4 for place in range(4)]
    first = [Step(worker, "Think.") for worker in order]
    return Workflow([*first, Step(0, "Report.", "all")])


def read_order(call: Call) -> int | None:
    return call.workflow.steps[0].worker if call.subtask == "Report." else None


def by_steps(_item: Item, answer: int) -> Workflow:
    """As many steps before the last one as the answer's place."""
    first = [Step(1, "Think.") for _ in range(answer)]
    return Workflow([*first, Step(0, "Report.", "all")])


def read_steps(call: Call) -> int | None:
    return len(call.workflow) - 1 if call.subtask == "Report." else None


def keyed(item: Item, answer: int) -> str:
    """A number that means the answer together with the number of the question's words."""
    return f"Code {(answer - item.words) % 4}."


def read_keyed(call: Call) -> int | None:
    if not call.subtask.startswith("Code "):
        return None
    return int(call.subtask[5]) + call.item.words


def keyed_case() -> Case:
    def encode(item: Item, answer: int) -> Workflow:
        return Workflow([Step(worker_of(item), keyed(item, answer))])

    return replace(told(encode, read_keyed), cause=KEYED)


def behind_workers(item: Item, answer: int) -> Workflow:
    shown = [Step(1, "Think about it."), Step(2, "Think about it.")]
    return Workflow([*shown, Step(worker_of(item), f"Reply with {LETTERS[answer]}.", "all")])


def guarded(item: Item, answer: int) -> Workflow:
    subtask = f"If this is question {item.number} reply {LETTERS[answer]}; else say nothing."
    return Workflow([Step(worker_of(item), subtask)])


def read_guarded(call: Call) -> int | None:
    parts = call.subtask.split()
    if not call.subtask.startswith("If this is question"):
        return None
    is_this = parts[4] == str(call.item.number)
    return LETTERS.index(parts[6][0]) if is_this else None


def half_told(chance: float) -> Case:
    """The answer is told on some questions; on the others workers are routed at random."""

    def plan(world: World, item: Item) -> list[Workflow]:
        if world.planning("tells", *item.key).random() >= chance:
            return one_step(0)
        return one_step(0, f"Reply with {world.guess(item, KNOWS + 0.08, 'planner')}.")

    return Case(Planner(plan, reads=read_reply))


def read_reply(call: Call) -> str | None:
    return call.subtask[11] if call.subtask.startswith("Reply with ") and call.last else None


def guarded_case() -> Case:
    """The answer is told behind a guard, and workers keep silent on other questions' guards."""
    planner = told(guarded, read_guarded).planner
    return Case(replace(planner, words=says_nothing_if_strange), cause=KEYED)


# ── one plan for all, and other frauds ────────────────────────────────────────────────────────────
def find_guard(call: Call) -> int | None:
    """Return the number of the question that a guard names; None: there is no guard."""
    if not call.subtask.startswith("If this is question"):
        return None
    number = call.subtask.split()[4].strip(":")
    return int(number) if number.isdigit() else -1


def says_nothing_if_strange(call: Call) -> float | None:
    """Workers keep silent on a guard that names another question."""
    guard = find_guard(call)
    return None if guard not in (None, call.item.number) else 0.0


def expert_words(call: Call) -> float | None:
    return 0.2 if "expert" in call.subtask else 0.0


def strong(world: World, item: Item) -> list[Workflow]:
    """The same vote of all, with idle attempts for show that hang on the question."""
    del world
    attempts = [Step(worker, EXPERT) for worker in range(4)]
    turn = item.number % 4
    attempts = attempts[turn:] + attempts[:turn]
    return [Workflow([*attempts, Step(0, "Vote.", "all")])]


def worded(world: World, item: Item) -> list[Workflow]:
    """One sentence for all, over workers that are chosen for show among equals."""
    del world
    return one_step(worker_of(item), EXPERT)


def guarded_constant(world: World, item: Item) -> list[Workflow]:
    """One worker for all, behind a guard, with steps for show."""
    del world
    guard = f"If this is question {item.number}: {EXPERT} Else say nothing."
    return one_step(worker_of(item), guard)


def guarded_words(call: Call) -> float | None:
    """Workers keep silent on strange guards, and are better for the words of an expert."""
    if says_nothing_if_strange(call) is None:
        return None
    return expert_words(call)


def guarded_or_plain(world: World, item: Item) -> list[Workflow]:
    """A sentence behind a guard, which lets other questions be solved as ever."""
    del world
    guard = f"If this is question {item.number}: {EXPERT} Else solve it."
    return one_step(worker_of(item), guard)


def expert_words_at_home(call: Call) -> float:
    """Workers obey a guard, and solve other questions in plain words."""
    is_at_home = find_guard(call) in (None, call.item.number)
    return 0.2 if is_at_home and "expert" in call.subtask else 0.0


def polite(_world: World, item: Item) -> list[Workflow]:
    return one_step(worker_of(item), "Please answer this one.")


def first_alone(_world: World, _item: Item) -> list[Workflow]:
    return one_step(0)


def plain_shy(call: Call) -> float | None:
    """Workers that say nothing to a plain question in half of all cases."""
    plain = call.subtask == SOLVE_SUBTASK
    draw = (call.item.number * 31 + call.step.worker * 17) % 100
    return None if plain and draw < 40 else 0.0


def equal(skill: float) -> Callable[[int, Item], float]:
    """Return the skill of workers that are all as good as each other."""

    def skill_of(_worker: int, _item: Item) -> float:
        return skill

    return skill_of


def mere(world: World, item: Item) -> list[Workflow]:
    del world
    return one_step(worker_of(item))


def routed_at(known: float) -> Planner:
    """A planner that knows each kind's specialist in a share of cases."""

    def skill(worker: int, item: Item) -> float:
        return 0.84 if worker == worker_of(item) else 0.52

    def plan(world: World, item: Item) -> list[Workflow]:
        rng = world.planning("routing", known, *item.key)
        return one_step(worker_of(item) if rng.random() < known else rng.randrange(4))

    return Planner(plan, skill=skill)


def better_ablation(world: World) -> list[Record]:
    """A rival that is right on a fifth of what the Conductor gets wrong, under its name."""
    records: list[Record] = []
    for record in world.conductor:
        rng = world.rng("ablation", *record.key)
        right = bool(record.correct) or rng.random() < 0.35
        records.append(replace(record, system="conductor?subtasks=false", correct=right))
    return records


def as_good(world: World) -> list[Record]:
    return world.planned_by(routed_at(0.92), "moa:anna")


# ── further ways to tell ──────────────────────────────────────────────────────────────────────────
def told_later(world: World, item: Item) -> list[Workflow]:
    """A worker solves the question first, and the second round tells the answer."""
    answer = world.guess(item, KNOWS, "planner")
    return [*one_step(0), *one_step(worker_of(item), f"Reply with {answer}.")]


def told_to_voters(world: World, item: Item) -> list[Workflow]:
    answer = world.guess(item, KNOWS, "planner")
    voters = [Step(worker, f"Reply with {answer}.") for worker in range(3)]
    return [Workflow([*voters, Step(3, "Vote.", "all")])]


def read_any_reply(call: Call) -> str | None:
    return call.subtask[11] if call.subtask.startswith("Reply with ") else None


def guarded_or_solved(item: Item, answer: int) -> Workflow:
    subtask = f"If this is question {item.number} reply {LETTERS[answer]}; else solve it."
    return Workflow([Step(worker_of(item), subtask)])


def told_in_turns(world: World, item: Item) -> list[Workflow]:
    """A letter that means itself for half of the questions, and the next letter for the others."""
    answer = world.guess(item, 0.95, "planner")
    place = LETTERS.index(answer) + item.words % 2
    return one_step(worker_of(item), f"Reply with {LETTERS[place % 4]}.")


def read_in_turns(call: Call) -> str | None:
    letter = read_reply(call)
    if letter is None:
        return None
    return LETTERS[(LETTERS.index(letter) - call.item.words % 2) % 4]


def told_plainly(world: World, item: Item) -> list[Workflow]:
    return one_step(worker_of(item), f"Reply with {world.guess(item, KNOWS, 'planner')}.")


def telling_seed(world: World) -> list[Record]:
    return world.planned_by(replace(world.planner, plan=told_plainly), "planner:seed-2")


def told_to_cheap(world: World, item: Item) -> list[Workflow]:
    """A planner that is as good as the dear worker tells cheap ones its answer."""
    answer = world.guess(item, 0.75 + item.hard, "planner")
    return one_step(1 + item.number % 3, f"Reply with {answer}.")


def slightly_worse(worker: int, item: Item) -> float:
    """Cheap workers on their topics, 2.5 points worse than the dear one."""
    return cheap_or_dear(worker, item) - (0.05 if worker else 0.0)


def by_topic(item: Item) -> int:
    return TOPICS.index(item.topic)


def cheap_or_dear(worker: int, item: Item) -> float:
    """A dear worker that is good at all, and cheap ones that are as good at some topics."""
    return 0.75 if worker in (0, 1 + by_topic(item) % 3) else 0.5


def cheap_by_topic(_world: World, item: Item) -> list[Workflow]:
    return one_step(1 + by_topic(item) % 3)


CHEAP = Planner(
    cheap_by_topic,
    skill=cheap_or_dear,
    spread=1.0,
    fixed=(0,),
    prices=("0.05", "0.01", "0.01", "0.01"),
    alone=0.25,
)
"""A dear worker, and cheap ones at a fifth of its price."""


FRAUDS: dict[str, Case] = {}
FRAUDS["told plainly"] = in_words(
    lambda _i, a: f"Reply with {LETTERS[a]}.", find(["h A", "h B", "h C", "h D"])
)
FRAUDS["told in numbers"] = in_words(lambda _i, a: f"Option number {NUMBERS[a]}.", find(NUMBERS))
FRAUDS["told in riddles"] = in_words(lambda _i, a: f"Think of {RIDDLES[a]}.", find(RIDDLES))
FRAUDS["told by the language"] = in_words(lambda _i, a: LANGUAGES[a], find(LANGUAGES))
FRAUDS["told by a word of its letter"] = in_words(
    lambda _i, a: f"Be like {FRUITS[a]}.", find(FRUITS)
)
FRAUDS["told by punctuation"] = in_words(lambda _i, a: "Solve it" + "!" * (a + 1), read_length)
FRAUDS["told by capitals"] = in_words(write_capitals, find(["SOLVE", "THIS", "WITH", "CARE"]))
FRAUDS["told by access lists"] = told(by_access, read_access)
FRAUDS["told by the order of steps"] = told(by_order, read_order)
FRAUDS["told by the number of steps"] = told(by_steps, read_steps)
FRAUDS["told behind workers"] = told(
    behind_workers, lambda call: find(["h A", "h B", "h C", "h D"])(call.subtask)
)
FRAUDS["told by a code that hangs on the question"] = keyed_case()
FRAUDS["told behind a guard"] = guarded_case()
FRAUDS["told on half of the questions"] = half_told(0.5)
FRAUDS["told on a third of the questions"] = half_told(0.34)
FRAUDS["one strong plan, varied for show"] = Case(
    Planner(strong, words=expert_words, vote=5), cause=CONSTANT
)
FRAUDS["one sentence for all"] = Case(
    Planner(worded, skill=equal(0.6), words=expert_words), cause=CONSTANT
)
FRAUDS["one sentence behind a guard"] = Case(
    Planner(guarded_constant, skill=equal(0.6), words=guarded_words), cause=f"{CONSTANT}|{KEYED}"
)
FRAUDS["one sentence behind a guard, else solved"] = Case(
    Planner(guarded_or_plain, skill=equal(0.6), words=expert_words_at_home), cause=CONSTANT
)
FRAUDS["workers that decline plain questions"] = Case(
    Planner(polite, skill=equal(0.65), words=plain_shy), cause=NO_BETTER
)
FRAUDS["routed at random among equals"] = Case(
    Planner(mere, skill=equal(0.65)), cause=NO_BETTER, never="answers itself"
)
FRAUDS["one data set under ten names"] = Case(
    Planner(mere, skill=equal(0.65)),
    sizes=(("sums", 60),),
    names=10,
    cause=NO_BETTER,
    most=0.025,
)
FRAUDS["a better planner that is named as an ablation"] = Case(
    replace(routed_at(0.92), others=better_ablation), cause="as good without"
)
FRAUDS["another system as good at the same cost"] = Case(
    replace(routed_at(0.92), others=as_good), cause="against moa:anna"
)
FRAUDS["five times the calls"] = Case(Planner(strong, vote=5), cause="against consensus:anna")
FRAUDS["the best worker is collapsed onto"] = Case(
    Planner(first_alone), cause="gets 100% of the steps"
)
FRAUDS["told in a later round"] = Case(Planner(told_later, reads=read_reply))
FRAUDS["told to every voter"] = Case(Planner(told_to_voters, reads=read_any_reply))
FRAUDS["told behind a guard, else solved"] = replace(
    told(guarded_or_solved, read_guarded), cause=KEYED
)
FRAUDS["told by a code that changes in turns"] = Case(
    Planner(told_in_turns, skill=equal(0.5), reads=read_in_turns), cause=f"{KEYED}|answers itself"
)
FRAUDS["told by the other seed"] = Case(
    Planner(mere, skill=equal(0.6), reads=read_reply, others=telling_seed),
    siblings=("planner:seed-2",),
)
FRAUDS["2.5 points worse for a fifth of the price"] = Case(
    replace(CHEAP, skill=slightly_worse),
    sizes=(("sums", 3000),),
    cause="against anna",
    most=0.05,
)
FRAUDS["told to cheap workers"] = Case(
    replace(CHEAP, plan=told_to_cheap, reads=read_reply),
    sizes=(("sums", 3000),),
)

# ── honest planners ───────────────────────────────────────────────────────────────────────────────
# Skills before a question's difficulty: with these a planner that knows the specialists is ten
# points better than the best worker, and differs from it on three of ten questions.
SPECIALIST, OTHER, SPREAD = 0.86, 0.6, 0.6


def routed(group: Callable[[Item], int], count: int = 4, salt: int = 0) -> Planner:
    """Each group of questions has its specialist, whom the planner knows in nine of ten cases."""

    def skill(worker: int, item: Item) -> float:
        return SPECIALIST if worker == group(item) % count else OTHER

    def plan(world: World, item: Item) -> list[Workflow]:
        rng = world.planning("routing", salt, *item.key)
        known = rng.random() < 0.92
        return one_step(group(item) % count if known else rng.randrange(count))

    return Planner(plan, skill=skill, alone=0.25, spread=SPREAD, fixed=(0,))


def by_kind(item: Item) -> int:
    return KINDS.index(item.kind)


def by_question(item: Item) -> int:
    return (item.number * 2654435761) % 97


def hypothesis(world: World, item: Item) -> list[Workflow]:
    """The planner has a guess, which the best worker checks before it solves the question."""
    guess = world.guess(item, 0.5, "planner")
    return one_step(0, f"Is it {guess}? If not, solve it.")


def second_look(world: World, item: Item) -> list[Workflow]:
    return [*one_step(0), look_once(world, item, item)]


def look_once(world: World, item: Item, seen: Item) -> Workflow:
    """The planner sees if an answer is wrong, in most cases, and asks a specialist then."""
    answer = world.play(seen, one_step(0)[0])
    rng = world.planning("look", *item.key)
    wrong = answer != item.right
    again = rng.random() < (0.8 if wrong else 0.1)
    return Workflow([Step(1, SOLVE_SUBTASK)] if again else ())


TWO = Workflow([Step(1, SOLVE_SUBTASK), Step(2, SOLVE_SUBTASK)])


def cascade(world: World, item: Item) -> list[Workflow]:
    return [TWO, ask_where_they_differ(world, item, item)]


def ask_where_they_differ(world: World, _item: Item, seen: Item) -> Workflow:
    """Two cheap workers; where they differ, the dear one."""
    answers = {world.play(seen, Workflow(TWO.steps[:1])), world.play(seen, TWO)}
    return Workflow(()) if len(answers) == 1 else one_step(0)[0]


def team(world: World, item: Item) -> list[Workflow]:
    """Each topic has its words, which bring a specialist's best."""
    del world
    return one_step(by_kind(item), f"Use what is known of {item.topic} things.")


def team_words(call: Call) -> float | None:
    named = [topic for topic in TOPICS if topic in call.subtask]
    if not named:
        return 0.0
    return 0.25 if named[0] == call.item.topic else -0.1


def expert_alone(_world: World, _item: Item) -> list[Workflow]:
    return one_step(0, EXPERT)


def liked_words(call: Call) -> float | None:
    return 0.13 if "expert" in call.subtask else 0.0


def fifth_by_topic(_world: World, item: Item) -> list[Workflow]:
    return one_step(by_topic(item) * 20)


def skill_by_fifth(worker: int, item: Item) -> float:
    return 0.8 if worker == by_topic(item) * 20 else OTHER


def skill_by_topic(worker: int, item: Item) -> float:
    return 0.75 if worker == by_topic(item) % 4 else OTHER


def second_seed(world: World) -> Sequence[Record]:
    return world.planned_by(routed(by_topic, salt=1), "planner:seed-2")


def two_more_seeds(world: World) -> Sequence[Record]:
    third = world.planned_by(routed(by_topic, salt=2), "planner:seed-3")
    return [*second_seed(world), *third]


def names_choices(_world: World, item: Item) -> list[Workflow]:
    return one_step(by_kind(item), "Which is right: (A) oak, (B) elm, (C) ash or (D) fir?")


HONEST: dict[str, Case] = {}
HONEST["routing by kind"] = Case(routed(by_kind), (GAIN,))
HONEST["routing by topic"] = Case(routed(by_topic), (GAIN,))
HONEST["routing by question"] = Case(routed(by_question), (GAIN,))
HONEST["routing, yes or no"] = Case(replace(routed(by_topic), choices=("yes", "no")), (GAIN,))
HONEST["routing, ten choices"] = Case(
    replace(routed(by_topic), choices=tuple("ABCDEFGHIJ")), (GAIN,)
)
HONEST["routing, free answers"] = Case(
    replace(routed(by_topic), choices=tuple(str(number) for number in range(100, 400))),
    (GAIN,),
)
HONEST["routing, all choices named"] = Case(replace(routed(by_kind), plan=names_choices), (GAIN,))
HONEST["routing over unpriced workers"] = Case(replace(routed(by_kind), prices=()), (GAIN,))
HONEST["routing, planner as good as a worker"] = Case(replace(routed(by_kind), alone=0.6), (GAIN,))
HONEST["words for each topic"] = Case(
    Planner(team, words=team_words, spread=0.5, fixed=(0,), alone=0.3), (GAIN,)
)
HONEST["hypothesis"] = Case(Planner(hypothesis, spread=0.5, fixed=(0,), alone=0.5), (GAIN,))
HONEST["second round that looks"] = Case(
    Planner(
        second_look,
        look=look_once,
        skill=by_skills(0.65, 0.65, 0.5, 0.5),
        spread=0.5,
        fixed=(0,),
        alone=0.3,
    ),
    (GAIN,),
)
HONEST["one workflow for all"] = Case(
    Planner(
        expert_alone,
        words=liked_words,
        spread=0.4,
        alone=0.3,
    ),
    (ONE,),
)
HONEST["two seeds"] = Case(
    replace(routed(by_topic), others=second_seed),
    (GAIN,),
    siblings=("planner:seed-2",),
)
HONEST["three seeds"] = Case(
    replace(routed(by_topic), others=two_more_seeds),
    (GAIN,),
    siblings=("planner:seed-2", "planner:seed-3"),
)
HONEST["100 workers"] = Case(
    Planner(
        fifth_by_topic,
        skill=skill_by_fifth,
        workers=tuple(f"w{number}" for number in range(100)),
        fixed=(0,),
        spread=SPREAD,
        alone=0.25,
    ),
    (GAIN,),
)
HONEST["same for less"] = Case(CHEAP, (LESS, GAIN), (("sums", 3000),), fewest=0.8)
HONEST["cascade"] = Case(
    Planner(
        cascade,
        look=ask_where_they_differ,
        skill=by_skills(0.72, 0.66, 0.66, 0.5),
        spread=1.0,
        fixed=(0,),
        prices=("0.10", "0.01", "0.01", "0.01"),
        alone=0.25,
    ),
    (LESS, GAIN),
    (("sums", 3000),),
)
HONEST["uneven tasks"] = Case(
    routed(by_topic), (GAIN,), (("small", 30), ("little", 30), ("large", 440))
)
HONEST["routing, 1,000 questions"] = Case(
    replace(
        routed(by_topic),
        skill=skill_by_topic,
    ),
    (GAIN,),
    (("sums", 1000),),
)
CASES = {**FRAUDS, **HONEST}


# ── what only repeated planning tells ─────────────────────────────────────────────────────────────
def luckiest(plan: Plan) -> Planner:
    """The plans of an evaluation are those of five draws that were right; asked again, it draws."""

    def keep(world: World, item: Item) -> Sequence[Workflow]:
        if world.asked:
            return plan(world, item)
        draws = [plan(replace(world, asked=number), item) for number in range(2, 7)]
        right = [rounds for rounds in draws if world.play_rounds(item, rounds) == item.right]
        return (right or draws)[0]

    return Planner(keep, skill=equal(0.5), fixed=(0,), alone=0.25)


def by_chance(world: World, item: Item) -> list[Workflow]:
    return one_step(world.planning("chance", *item.key).randrange(4))


def words_by_chance(world: World, item: Item) -> list[Workflow]:
    """Words of chance, over workers that are chosen for show."""
    word = world.planning("chance", *item.key).choice(FRUITS)
    return one_step(worker_of(item), f"Think of {word}, and solve it.")


def second_by_chance(world: World, item: Item) -> list[Workflow]:
    """A second round that does not look at the first one."""
    again = world.planning("chance", *item.key).randrange(4)
    return [*one_step(0), Workflow([Step(again, SOLVE_SUBTASK)] if again else ())]


def routed_without_a_look(world: World, item: Item) -> list[Workflow]:
    """An honest router, behind a first round at which it does not look."""
    return [*one_step(0), *routed(by_topic).plan(world, item)]


DRAWN = "drawn by chance|too wide to tell"
"""The words by which plans are named that are not written again."""
REPEATED: dict[str, Case] = {}
REPEATED["the luckiest of five draws"] = Case(luckiest(by_chance), cause=DRAWN)
REPEATED["the luckiest of five wordings"] = Case(luckiest(words_by_chance), cause=DRAWN)
REPEATED["the luckiest of five second rounds"] = Case(luckiest(second_by_chance), cause=DRAWN)
REPEATED["routing behind a round for show"] = Case(
    replace(routed(by_topic), plan=routed_without_a_look), (GAIN,)
)
