"""The trained routers learn which worker suits a question and who belongs where in a team.

As far as questions say.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from planted import Say, answers, asked, planted_pool
from topics import draw_topics

from openconductor.baselines.collaboration import COLLABORATIONS, Trial, trial_of
from openconductor.baselines.observed import Observations
from openconductor.baselines.routers import MASRouter, RouterDC, fit_encoder
from openconductor.errors import ConfigError
from openconductor.gym.questions import draw_questions
from openconductor.parser import validate_workflow
from openconductor.pool import WorkerPool
from openconductor.types import Step, Workflow

TRAIN, HELD_OUT = draw_topics(160, seed=3), draw_topics(120, seed=4)
TOPIC = dict(TRAIN + HELD_OUT)
QUESTIONS = tuple(question for question, _ in TRAIN)
ASKED = [question for question, _ in HELD_OUT]


# ── texts as vectors ──────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", ["tfidf", "hashed"])
def test_rows_have_length_one_and_the_sign_of_a_number_counts_but_no_hyphen(name: str) -> None:
    texts = ["Answer: -5", "Answer: 5", "case 3-4", "case 3 4", "well-known", "well known"]
    rows = fit_encoder(name, texts)(texts)
    minus, plus, hyphen, space, joined, apart = rows
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)
    assert minus @ plus < 0.9
    assert hyphen @ space == pytest.approx(1)
    assert joined @ apart == pytest.approx(1)


Knows = Callable[[int, int], bool | None]

KNOWS: dict[str, Knows] = {
    "sky": lambda _, topic: topic == 0,
    "words": lambda _, topic: topic == 1,
    "fool": lambda *_: False,
}


def test_tfidf_knows_only_what_it_was_fitted_on_single_characters_among_it() -> None:
    encode = fit_encoder("tfidf", ["4", "C", "planet"])
    assert not encode(["xylophone zebra"]).any()
    assert (encode(["planet xylophone"]) == encode(["planet zebra"])).all()
    assert (encode(["4"]) @ encode(["4", "C"]).T).round(6).tolist() == [[1.0, 0.0]]
    with pytest.raises(ConfigError, match="expected texts with words"):
        fit_encoder("tfidf", ["", "…"])


# ── one worker ────────────────────────────────────────────────────────────────────────────────────
def knows(topic: int) -> Say:
    return lambda messages, rng: "right" if TOPIC[asked(messages)] == topic else "wrong"


def experts() -> WorkerPool:
    """The first is right on exactly topic 0, the second on exactly topic 1, the third never."""
    return planted_pool(sky=knows(0), words=knows(1), fool=lambda *_: "wrong")


def pool_named(*names: str) -> WorkerPool:
    return planted_pool(**dict.fromkeys(names, lambda *_: "4"))


def seen(**others: Knows | None) -> Observations:
    """Return what workers did in training, by functions of index and topic: by default experts."""
    workers = others or KNOWS
    rows: list[tuple[float | None, ...]] = []
    for index, (_, topic) in enumerate(TRAIN):
        row = [(knows or KNOWS[name])(index, topic) for name, knows in workers.items()]
        rows.append(tuple(None if right is None else float(right) for right in row))
    return Observations(QUESTIONS, tuple(workers), tuple(rows))


@pytest.fixture(scope="module")
def router() -> RouterDC:
    """A router over the experts, of whom none is right on more than half of the questions."""
    return RouterDC(experts(), observations=seen())


@pytest.fixture
def file(router: RouterDC, tmp_path: Path) -> Path:
    """The router's file."""
    router.save(tmp_path / "router.json")
    return tmp_path / "router.json"


async def test_a_learnable_pool_is_learnt_and_again_from_its_file(router, file: Path) -> None:
    texts = await answers(router, ASKED)
    assert texts.count("right") >= 0.95 * len(ASKED)
    again = RouterDC(experts(), router=file)
    for question in ASKED:
        assert again.choose(question) == router.choose(question)
    assert again._model.scores(ASKED[0]) == router._model.scores(ASKED[0])


async def test_a_router_chooses_among_the_workers_that_are_left(file: Path) -> None:
    """All of topic 1 is right; nobody is left who knows topic 0."""
    smaller = RouterDC(experts().subset([2, 1]), router=file)
    texts = await answers(smaller, ASKED)
    assert texts.count("right") >= 0.95 * len(ASKED) / 2
    with pytest.raises(ConfigError, match="expected one of them in the pool"):
        RouterDC(pool_named("stranger"), router=file)


def test_an_encoder_that_is_a_function_cannot_be_saved(tmp_path: Path) -> None:
    encode = lambda texts: np.ones((len(texts), 1))  # noqa: E731
    unnamed = RouterDC(experts(), observations=seen(), encoder=encode)
    with pytest.raises(ConfigError, match="a function cannot be saved"):
        unnamed.save(tmp_path / "unnamed.json")


UNREADABLE = {"questions": ["a"], "workers": ["x"], "right": [["?"]]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 1}, "of version 1, expected 3: train it again"),
        ({"encoder": None}, "encoder"),
        ({"observations": None}, "observations"),
        ({"observations": UNREADABLE}, r"observations\.right"),
    ],
)
def test_a_file_that_holds_no_router_is_refused(
    change: dict[str, object], message: str, file: Path
) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ConfigError, match=message):
        RouterDC(experts(), router=file)


def test_a_masked_outcome_is_no_wrong_one() -> None:
    """The first is always right, but mostly not decided; if masked were wrong, it were worse."""
    rng = np.random.default_rng(0)
    masked = seen(
        sure=lambda *_: None if rng.random() < 0.6 else True, half=lambda *_: rng.random() < 0.6
    )
    pool = pool_named("sure", "half")
    router = RouterDC(pool, observations=masked)
    assert {router.choose(question) for question in ASKED} == {"sure"}
    alone = MASRouter(pool, observations=masked)
    assert {alone.choose(question)[1] for question in ASKED} == {("sure",)}


def test_a_worker_of_which_nothing_was_decided_is_never_chosen() -> None:
    observations = seen(unseen=lambda *_: None, sky=None, words=None)
    router = RouterDC(pool_named("unseen", "sky", "words"), observations=observations)
    assert {router.choose(question) for question in ASKED} == {"sky", "words"}
    with pytest.raises(ConfigError, match="nothing was decided"):
        RouterDC(pool_named("x"), observations=Observations(("a",), ("x",), ((None,),)))


def test_a_question_of_which_nothing_is_known_goes_to_the_worker_that_is_best_overall() -> None:
    observations = seen(sky=None, words=lambda *_: True, fool=None)
    assert RouterDC(experts(), observations=observations).choose("Xylophone zebra?") == "words"
    assert RouterDC(experts().subset([0, 2]), observations=observations).choose("Hm?") == "sky"


# ── a team ────────────────────────────────────────────────────────────────────────────────────────
# ── a team ────────────────────────────────────────────────────────────────────────────────────────
def test_only_workers_on_offer_are_seated() -> None:
    trials: list[Trial] = []
    for question in QUESTIONS:
        trials += [Trial(question, "io", (name,), 1.0) for name in KNOWS]
    fewer = MASRouter(experts().subset([1, 2]), trials=trials)
    seats = {fewer.choose(question)[1] for question in ASKED[:10]}
    assert seats <= {("words",), ("fool",)}
    strangers = MASRouter(pool_named("stranger"), trials=trials)
    with pytest.raises(ConfigError, match="no mode was tried with the workers on offer"):
        strangers.choose("Hm?")


@pytest.mark.parametrize(
    ("system", "options", "message"),
    [
        (RouterDC, {}, "either observations to train on or a trained router"),
        (
            RouterDC,
            {"observations": seen(), "router": "router.json"},
            "either observations to train on",
        ),
        (MASRouter, {}, "expected trials or observations"),
        (MASRouter, {"trials": (), "seed": -1}, r"MASRouter\.seed"),
    ],
)
def test_something_to_train_on_is_needed_and_only_one_thing(system, options, message) -> None:
    with pytest.raises(ConfigError, match=message):
        system(experts(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields",
    [
        ("io", ("a", "b"), 1.0),
        ("io", ("a",), 1.1),
        ("guild", ("a",), 1.0),
    ],
)
def test_a_trial_that_cannot_have_been_is_refused(
    fields: tuple[str, tuple[str, ...], float],
) -> None:
    with pytest.raises(ConfigError, match=r"Trial|collaboration"):
        Trial("a", *fields)


# ── collaborations ────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "question", ["What is 6 * 7?", *(drawn.text for drawn in draw_questions("train", 6, seed=0))]
)
def test_a_collaboration_is_a_valid_workflow_and_is_found_again_in_it(question: str) -> None:
    workers = pool_named("a", "b", "c")
    for mode in COLLABORATIONS.values():
        ordinals = [index % 3 for index in range(len(mode.roles))]
        workflow = mode.workflow(ordinals, question)
        if mode.name != "io":  # whose instruction is blank on purpose: the question alone
            validate_workflow(workflow, range(3), max_steps=5)
        names = tuple("abc"[ordinal] for ordinal in ordinals)
        trial = trial_of(question, "q", workflow, workers, right=1.0)
        assert trial == Trial("q", mode.name, names, 1.0)


def test_a_workflow_of_no_mode_is_no_trial() -> None:
    song = Workflow([Step(0, "Sing.")])
    assert trial_of("Hm?", "q", song, pool_named("a"), right=1.0) is None
