"""Questions of three trades, and three scripted workers, each of whom knows one trade.

A worker is right on every question of its own trade and on one in five of the others. So no
constant choice is right on more than about half of the questions, and the right choice on all.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import ClassVar

import openconductor as oc
from openconductor import Dataset, Grade, Item, Problem, Row, Shape
from openconductor.tasks.prompts import boxed_prompt

WORKERS = {"calculator": "sums", "atlas": "places", "linguist": "words"}
_CAPITALS = """
France=Paris Spain=Madrid Italy=Rome Japan=Tokyo Kenya=Nairobi Peru=Lima Cuba=Havana Egypt=Cairo
Norway=Oslo Sweden=Stockholm Finland=Helsinki Poland=Warsaw Austria=Vienna Hungary=Budapest
Greece=Athens Portugal=Lisbon Ireland=Dublin Iceland=Reykjavik Denmark=Copenhagen
Belgium=Brussels Canada=Ottawa Chile=Santiago Ghana=Accra Iran=Tehran Iraq=Baghdad Jordan=Amman
Laos=Vientiane Malta=Valletta Nepal=Kathmandu Oman=Muscat Qatar=Doha Serbia=Belgrade
Syria=Damascus Thailand=Bangkok Tunisia=Tunis Turkey=Ankara
"""
_WORDS = """
table river window garden pencil orange candle hammer basket mirror bottle carpet ladder needle
pillow saddle ticket tunnel violin whistle blanket cabin dolphin engine feather glove anchor
barrel camera desert eagle forest guitar harbour island jacket kettle lemon market
"""
CAPITALS = dict(pair.split("=") for pair in _CAPITALS.split())
WORDS = _WORDS.split()
ASKED = {
    "sums": (
        ("What is {a} plus {b}?", lambda a, b: a + b),
        ("Work out {a} times {b}.", lambda a, b: a * b),
        ("Subtract {b} from {a}.", lambda a, b: a - b),
        ("How many minutes are {a} hours and {b} minutes?", lambda a, b: 60 * a + b),
        (
            "A box holds {a} apples, and {b} more are put in. How many are there?",
            lambda a, b: a + b,
        ),
        ("Which number is larger, {a} or {b}?", max),
    ),
    "places": (
        ("What is the capital of {country}?", "capital"),
        ("Of which country is {capital} the capital?", "country"),
        ("A traveller lands in {capital}. In which country is she?", "country"),
        ("In which city does the government of {country} meet?", "capital"),
        ("Name the country that is ruled from {capital}.", "country"),
        ("To which city does one fly to see the parliament of {country}?", "capital"),
    ),
    "words": (
        ("What is the plural of '{word}'?", lambda word: f"{word}s"),
        ("Spell '{word}' backwards.", lambda word: word[::-1]),
        ("How many letters has the word '{word}'?", len),
        ("Which letter does '{word}' end with?", lambda word: word[-1]),
        ("Write '{word}' in capital letters.", str.upper),
        ("What remains of '{word}' without its first letter?", lambda word: word[1:]),
    ),
}


class Named:
    """Accepts answers that end in the reference."""

    async def grade(self, problem: Problem, answer: str) -> Grade:
        final = answer.rpartition(":")[2].strip()
        return Grade(final == problem.reference, final)


def _item(row: Row) -> Item:
    answer = row.text("answer")
    return row.item(boxed_prompt(row.text("ask")), answer, f"It is: {answer}")


TRADES = Dataset("trades", shapes=(Shape(("ask", "answer"), _item),), grader=Named)


def draw(rng: random.Random, trade: str) -> tuple[str, str]:
    """Draw a question and its answer."""
    text, answer = rng.choice(ASKED[trade])
    if trade == "sums":
        a, b = rng.randint(11, 99), rng.randint(2, 59)
        return text.format(a=a, b=b), str(answer(a, b))
    if trade == "words":
        word = rng.choice(WORDS)
        return text.format(word=word), str(answer(word))
    country, capital = rng.choice(list(CAPITALS.items()))
    known = {"country": country, "capital": capital}
    return text.format(**known), known[answer]


def write_questions(path: Path, count: int, seed: int = 0) -> dict[str, str]:
    """Write different questions of the trades in turn; return the trade of each."""
    rng = random.Random(seed)
    trades: dict[str, str] = {}
    with path.open("w") as file:
        while len(trades) < count:
            trade = list(ASKED)[len(trades) % len(ASKED)]
            question, answer = draw(rng, trade)
            if question not in trades:
                trades[question] = trade
                print(json.dumps({"ask": question, "answer": answer}), file=file)
    return trades


def bare(question: str) -> str:
    """Return a question as a user asks it, without the form of the answer."""
    return question.partition("\n\n")[0]


class Tradesman(oc.Provider):
    """A scripted worker, named after its model; it counts its calls by name."""

    calls: ClassVar[dict[str, int]] = {}
    rows: ClassVar[dict[str, tuple[str, str]]] = {}
    """By question: its answer and its trade."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.identity = f"tradesman {model}"

    async def complete(
        self,
        messages: Sequence[oc.Message],
        sampling: oc.Sampling,
        *,
        call: oc.CallContext,
        on_text: object = None,
    ) -> oc.Completion:
        del sampling, call, on_text
        self.calls[self.model] = self.calls.get(self.model, 0) + 1
        question = bare(messages[0].content)
        answer, trade = self.rows[question]
        digest = blake2b(f"{self.model}/{question}".encode()).digest()
        if WORKERS[self.model] != trade and digest[0] % 5:
            answer = "nobody knows"
        return oc.Completion(f"I am the {self.model}. It is: {answer}", usage=oc.Usage(20, 0, 9))


def open_shop(folder: Path, count: int, seed: int = 0) -> tuple[Path, Path]:
    """Write questions and a pool file of the workers; return the paths of both."""
    questions, pool = folder / "questions.jsonl", folder / "pool.toml"
    trades = write_questions(questions, count, seed)
    for line in questions.read_text().splitlines():
        row = json.loads(line)
        Tradesman.rows[row["ask"]] = row["answer"], trades[row["ask"]]
    pool.write_text(
        "".join(
            f'[[worker]]\nname = "{name}"\nprovider = "{__name__}:Tradesman"\nmodel = "{name}"\n'
            for name in WORKERS
        )
    )
    return questions, pool
