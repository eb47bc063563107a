"""Questions of two topics, told apart by their words: what the tests of the routers ask."""

from __future__ import annotations

import random

SKY = ("planet", "moon", "comet", "orbit", "star", "galaxy", "eclipse", "meteor")
WORDS = ("verb", "noun", "clause", "syllable", "grammar", "prefix", "tense", "vowel")


def draw_topics(count: int, seed: int) -> list[tuple[str, int]]:
    """(question, topic), half of topic 0 and half of topic 1, in a drawn order.

    The questions are all different.
    """
    rng = random.Random(f"topics/{seed}")
    drawn: list[tuple[str, int]] = []
    for number in range(count):
        topic = number % 2
        first, second = rng.sample((SKY, WORDS)[topic], 2)
        drawn.append((f"What has a {first} to do with a {second}, in case {seed}-{number}?", topic))
    rng.shuffle(drawn)
    return drawn


def topic_of(question: str) -> int:
    """The topic of a drawn question, by its first word of one."""
    return 0 if question.split()[3] in SKY else 1
