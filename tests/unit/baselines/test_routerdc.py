"""RouterDC learns which worker suits a question, as far as its questions say."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from planted import Say, answers, asked, planted_pool
from topics import draw_topics

from openconductor.baselines.contrast import ContrastiveSettings, Triples, contrastive_loss
from openconductor.baselines.masrouter import fit_masrouter
from openconductor.baselines.observed import Observations
from openconductor.baselines.routerdc import (
    ContrastiveRouter,
    RouterDC,
    fit_routerdc,
)
from openconductor.baselines.trials import trials_of_workers
from openconductor.errors import ConfigError
from openconductor.pool import WorkerPool
from openconductor.types import Message

TRAIN, HELD_OUT = draw_topics(200, seed=1), draw_topics(200, seed=2)
TOPIC = dict(TRAIN + HELD_OUT)


def expert(topic: int) -> Say:
    return lambda messages, rng: "right" if TOPIC[asked(messages)] == topic else "wrong"


def experts() -> WorkerPool:
    """The first is right on exactly topic 0, the second on exactly topic 1, the third never."""
    return planted_pool(sky=expert(0), words=expert(1), fool=lambda *_: "wrong")


def seen() -> Observations:
    """What the experts did in training."""
    rows = [(topic == 0, topic == 1, False) for _, topic in TRAIN]
    return Observations(
        tuple(question for question, _ in TRAIN),
        ("sky", "words", "fool"),
        tuple(tuple(map(float, row)) for row in rows),
    )


@cache
def trained(seed: int = 0) -> ContrastiveRouter:
    return fit_routerdc(seen(), seed)


def rights(said: Sequence[str | None]) -> list[bool]:
    return [answer == "right" for answer in said]


async def test_a_learnable_pool_is_learnt_where_no_single_worker_is_right_on_more_than_half() -> None:
    pool = experts()
    questions = [question for question, _ in HELD_OUT]
    routed = rights(await answers(RouterDC(pool, router=trained()), questions))
    assert sum(routed) / len(routed) >= 0.95
    assert max(seen().shares().values()) == 0.5  # type: ignore[type-var]


async def test_workers_that_do_equally_well_are_not_told_apart_by_their_ordinals() -> None:
    # Nobody but the expert of a topic knows it; whom of five fools a question is pushed away from must not matter.
    fools = tuple(f"fool {number}" for number in range(5))
    rows = tuple((*(0.0 for _ in fools), float(topic == 0), float(topic == 1)) for _, topic in TRAIN)
    router = fit_routerdc(
        Observations(seen().questions, (*fools, "sky", "words"), rows), settings=ContrastiveSettings()
    )
    near = router.similarities([question for question, _ in HELD_OUT])
    assert np.mean(near.argmax(axis=1) - len(fools) == [topic for _, topic in HELD_OUT]) >= 0.95


def test_where_questions_say_nothing_every_one_goes_to_the_best_worker() -> None:  # of three: see predictions
    shares, names, seed = (0.2, 0.7), ("a", "b"), 4
    rng = np.random.default_rng(seed)
    rows = tuple(tuple(float(rng.random() < share) for share in shares) for _ in TRAIN)
    noise = Observations(seen().questions, names, rows)
    questions = [question for question, _ in HELD_OUT]
    assert {names[place] for place in fit_routerdc(noise, seed).choices(questions)} == {noise.best()} == {"b"}
    # Trained come what may it learns chance by heart, and falls below: what the rule is there for.
    stubborn = fit_routerdc(noise, seed, settings=ContrastiveSettings()).choices(questions)
    assert np.mean([shares[place] for place in stubborn]) < max(shares)


def test_a_masked_outcome_is_no_wrong_one() -> None:
    # The first is always right, but mostly not decided; as wrong ones, its masked outcomes would make it the worse.
    rng = np.random.default_rng(0)
    rows = tuple((None if rng.random() < 0.6 else 1.0, float(rng.random() < 0.6)) for _ in TRAIN)
    masked = Observations(seen().questions, ("sure", "half"), rows)
    questions = [question for question, _ in HELD_OUT]
    assert set(fit_routerdc(masked).choices(questions)) == {0}
    alone = fit_masrouter(trials_of_workers(masked))
    assert {alone.choose(question, masked.workers)[1] for question in questions} == {("sure",)}
    assert masked.best() == "sure"
    as_wrong = Observations(masked.questions, masked.workers, tuple((row[0] or 0.0, row[1]) for row in rows))
    assert as_wrong.best() == "half"


def test_a_worker_of_which_nothing_was_decided_is_never_chosen() -> None:
    rows = tuple((None, *row[:2]) for row in seen().right)
    observations = Observations(seen().questions, ("unseen", "sky", "words"), rows)
    router = fit_routerdc(observations, settings=ContrastiveSettings())
    assert router.workers == ("sky", "words")


def test_the_same_seed_gives_the_same_router_and_another_seed_another_one() -> None:
    first, again = trained(), RouterDC(experts(), observations=seen(), seed=0).router
    assert (first.projection == again.projection).all()
    assert (first.embeddings == again.embeddings).all()
    other = fit_routerdc(seen(), 1, settings=ContrastiveSettings())
    assert first.projection.shape == other.projection.shape
    assert not (first.projection == other.projection).all()


def test_a_router_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    router = trained()
    router.save(tmp_path / "router.json")
    again = ContrastiveRouter.load(tmp_path / "router.json")
    questions = [question for question, _ in HELD_OUT]
    assert (again.similarities(questions) == router.similarities(questions)).all()
    assert again.workers == router.workers
    assert (again.overall == router.overall).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 9}, "version 9"),
        ({"encoder": None}, "encoder"),
        ({"encoder": {"kind": "tfidf", "terms": ["a"]}}, "missing 'idf'"),
        ({"projection": [[1.0], [1.0, 2.0]]}, "projection: .*expected a table of numbers"),
        ({"embeddings": [[1.0, 2.0]]}, r"embeddings: got the shape \(1, 2\)"),
        ({"overall": ["a", "b", "c"]}, "overall"),
    ],
)
def test_a_file_that_holds_no_router_is_refused(change: dict[str, object], message: str, tmp_path: Path) -> None:
    trained().save(tmp_path / "router.json")
    data = json.loads((tmp_path / "router.json").read_text()) | change
    (tmp_path / "router.json").write_text(json.dumps(data))
    with pytest.raises(ConfigError, match=message):
        RouterDC(experts(), router=tmp_path / "router.json")


async def test_a_saved_router_is_played_over_the_workers_of_the_pool(tmp_path: Path) -> None:
    trained().save(tmp_path / "router.json")
    system = RouterDC(experts(), router=tmp_path / "router.json")
    assert (await system.ask(HELD_OUT[0][0])).answer == "right"
    smaller = RouterDC(experts().subset([2, 1]), router=tmp_path / "router.json")
    said = await answers(smaller, [question for question, _ in HELD_OUT])
    assert sum(rights(said)) >= 0.95 * 100  # of topic 1 all; of topic 0 nobody is left who knows it
    with pytest.raises(ConfigError, match="expected one of them in the pool"):
        RouterDC(planted_pool(stranger=lambda *_: "hello"), router=tmp_path / "router.json")


async def test_a_question_of_which_nothing_is_known_goes_to_the_worker_that_is_best_overall() -> None:
    better = Observations(seen().questions, seen().workers, tuple((right[0], 1.0, 0.0) for right in seen().right))
    router = fit_routerdc(better, settings=ContrastiveSettings())
    assert router.choose("Xylophone zebra?", ["sky", "words", "fool"]) == "words"
    assert router.choose([Message("user", "Hm?")][0].content, ["sky", "fool"]) == "sky"
    with pytest.raises(ConfigError, match="expected one of them among"):
        router.choose("Hm?", ["stranger"])


def test_what_was_not_observed_neither_draws_nor_pushes() -> None:
    half = Observations(
        seen().questions,
        seen().workers,
        tuple((row[0], row[1], None) for row in seen().right),
    )
    router = fit_routerdc(half, settings=ContrastiveSettings())
    near = router.similarities([question for question, _ in HELD_OUT])[:, :2]
    assert np.mean(near.argmax(axis=1) == [topic for _, topic in HELD_OUT]) >= 0.95


def test_something_to_train_on_is_needed_and_only_one_thing() -> None:
    for options in ({}, {"observations": seen(), "router": "router.json"}):
        with pytest.raises(ConfigError, match="either observations to train on or a trained router"):
            RouterDC(experts(), **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="nothing was decided"):
        fit_routerdc(Observations(("a",), ("x",), ((None,),)))


# ── the loss ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def slopes(loss: object, place: np.ndarray) -> np.ndarray:
    """The gradient by central differences."""
    found = np.zeros_like(place)
    for index in np.ndindex(place.shape):
        around = []
        for step in (1e-6, -1e-6):
            moved = place.copy()
            moved[index] += step
            around.append(loss(moved))  # type: ignore[operator]
        found[index] = (around[0] - around[1]) / 2e-6
    return found


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_the_written_down_gradient_is_the_slope_of_the_loss(temperature: float) -> None:
    rng = np.random.default_rng(0)
    rows = rng.random((8, 6))
    rows[3] = 0  # a question of which nothing is known has no direction
    contrasts = (rng.random((8, 4, 4)) < 0.3).astype(float)
    triples = Triples(np.array([0, 1, 5]), np.array([2, 3, 7]), np.array([[4, 5], [6, 0], [1, 2]]))
    settings = ContrastiveSettings(temperature=temperature, weight=0.7)
    projection, embeddings = rng.normal(size=(6, 3)), rng.normal(size=(4, 3))

    def loss(projection: np.ndarray, embeddings: np.ndarray) -> float:
        return contrastive_loss((projection, embeddings), rows, contrasts, triples, settings)[0]

    _, (by_projection, by_embeddings) = contrastive_loss((projection, embeddings), rows, contrasts, triples, settings)
    assert np.allclose(by_projection, slopes(lambda moved: loss(moved, embeddings), projection), atol=1e-7)
    assert np.allclose(by_embeddings, slopes(lambda moved: loss(projection, moved), embeddings), atol=1e-7)


def test_the_loss_is_the_sum_that_the_module_writes_down() -> None:
    # One question along the first axis; workers at cosines 1, 0 and -1; the first against the other two.
    contrasts = np.zeros((1, 3, 3))
    contrasts[0, 0, 1:] = 1
    embeddings = np.array([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0]])
    nothing = Triples(np.zeros(0, int), np.zeros(0, int), np.zeros((0, 3), int))
    loss, _ = contrastive_loss(
        (np.eye(2), embeddings), np.array([[1.0, 0.0]]), contrasts, nothing, ContrastiveSettings()
    )
    assert loss == pytest.approx(-np.log(np.e / (np.e + 1 + np.exp(-1))))
    # Two questions more: the anchor's own cluster is along it, the other one across.
    triples = Triples(np.array([0]), np.array([1]), np.array([[2]]))
    rows = np.array([[1.0, 0.0], [5.0, 0.0], [0.0, 1.0]])
    loss, _ = contrastive_loss(
        (np.eye(2), embeddings), rows, np.zeros((3, 3, 3)), triples, ContrastiveSettings(weight=2.0)
    )
    assert loss == pytest.approx(-2 * np.log(np.e / (np.e + 1)) / 3)
