"""Routers that learn from other questions: RouterDC-lite and MASRouter-lite, on scikit-learn.

RouterDC (Chen et al. 2024, arXiv 2409.19886) and MasRouter (Yue et al. 2025, arXiv 2502.11133) are
*lite* here: the encoder is frozen (TF-IDF by default) where theirs is trained or large, and both
are one logistic model. The score of a choice is a sum over its parts, each linear in the question's
vector.

- RouterDC's *sample-LLM* loss draws a question to the workers that answer it and away from those
  that do not. Here each such pair of workers is one comparison, and a part is a worker. Its
  *sample-sample* loss shapes an encoder that is trained, so it is left out.
- MasRouter learns a mode, roles and a worker a role by policy gradient. Here Trials are drawn
  beforehand (``Explorer``) and a team's chance to be right is fitted to them. Parts are the mode,
  each worker in each role, and each worker.

The weight of the question's words is chosen on questions left out: the least that is not worse than
the best by more than one standard error (Breiman et al. 1984, section 3.4.3). Where words say
nothing, one choice is made for all.
"""

# scikit-learn and scipy have no type stubs: what comes out of them may be of unknown type here.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import importlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openconductor.baselines.collaboration import COLLABORATIONS, Collaboration, Trial
from openconductor.baselines.observed import Observations
from openconductor.baselines.pools import Baseline, check_count
from openconductor.episode import LiveEpisode
from openconductor.errors import ConfigError
from openconductor.pool import WorkerPool
from openconductor.store.serialisation import dumps, load
from openconductor.store.storage import write_whole
from openconductor.tasks.instructions import ALONE
from openconductor.types import Step, Workflow, text_of

Floats = NDArray[np.float64]
Encoder = Callable[[Sequence[str]], Floats]
"""``encoder(texts_N) -> rows_N_D``, of unit length; a row is 0 if nothing of its text is known."""

TFIDF = "tfidf"
HASHED = "hashed"
VERSION = 3
SCALES = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Weights of a question's words beside what a part is worth for any question."""
FOLDS = 3
FEWEST = 20
"""The fewest questions of which some are left out; below it the words have weight 1."""

# Single letters and digits count, because they are whole answers. So does the sign of a number.
_WORDS = r"(?u)(?:(?<![\w)])[-−](?=\d))?\b\w+\b"


# ── texts as vectors ──────────────────────────────────────────────────────────────────────────────
def fit_encoder(encoder: str | Encoder, texts: Sequence[str]) -> Encoder:
    """Return the named encoder, fitted if it needs that; a function is returned as it is.

    Args:
        encoder: ``tfidf`` (words and pairs of words, fitted on the texts), ``hashed`` (the same in
            4,096 buckets, not fitted), the name of a model of sentence-transformers, or a
            function.
        texts: the texts to fit on: of training only.

    Raises:
        ConfigError: the texts have no words, the encoder is neither a name nor a function, or its
            library or model is missing.
    """
    if not isinstance(encoder, str):
        if not callable(encoder):
            raise ConfigError(
                f"encoder: got {encoder!r}, expected a name or a function from texts to rows"
            )
        return encoder
    if encoder not in (HASHED, TFIDF):
        return _sentence_encoder(encoder)
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer

    words: dict[str, Any] = {"ngram_range": (1, 2), "token_pattern": _WORDS}
    vectorizer: Any = HashingVectorizer(n_features=4096, **words)
    if encoder == TFIDF:
        vectorizer = TfidfVectorizer(max_features=2048, sublinear_tf=True, **words)
        try:
            vectorizer.fit(list(texts))
        except ValueError as error:
            raise ConfigError(f"TF-IDF: {error}; expected texts with words") from error

    def encode(texts: Sequence[str]) -> Floats:
        return np.asarray(vectorizer.transform(list(texts)).toarray(), dtype=np.float64)

    return encode


def _sentence_encoder(name: str) -> Encoder:
    """Load a model of sentence-transformers."""
    try:
        module = importlib.import_module("sentence_transformers")
        model: Any = module.SentenceTransformer(name)
    except (ImportError, OSError, ValueError) as error:
        raise ConfigError(
            f"encoder {name!r}: {error}; expected a model of sentence-transformers (pip install "
            f"sentence-transformers); the offline encoders are {TFIDF!r} and {HASHED!r}"
        ) from error
    options = {"normalize_embeddings": True, "show_progress_bar": False}
    return lambda texts: np.asarray(model.encode(list(texts), **options), dtype=np.float64)


# ── the model ─────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class _Example:
    """One choice on one question: its parts, the share of right answers, and its weight."""

    question: str
    parts: Mapping[str, float]
    right: float
    weight: float = 1.0


class _Model:
    """A logistic model of choices; ``scores`` are what each part adds to a choice on a question."""

    def __init__(
        self, parts: Sequence[str], examples: Sequence[_Example], encode: Encoder, seed: int
    ) -> None:
        self.parts = list(parts)
        self._encode = encode
        if not examples:  # no two choices differ
            self._weights = np.zeros((len(parts), 1))
            return
        questions = list(dict.fromkeys(example.question for example in examples))
        self._set_targets(examples, questions)
        self._set_design(examples, questions)
        scale = self._choose_scale(seed) if len(questions) >= FEWEST else 1.0
        scales = self._scales(scale)
        model = _logistic(1e-4).fit(self._design @ scales, self._right, sample_weight=self._weight)
        self._weights = (model.coef_ @ scales).reshape(len(parts), -1)

    def scores(self, question: str) -> dict[str, float]:
        """Return what each part adds for a question, in units of log odds."""
        row = self._rows([question])[0][: self._weights.shape[1]]
        return dict(zip(self.parts, (self._weights @ row).tolist(), strict=True))

    def _set_targets(self, examples: Sequence[_Example], questions: Sequence[str]) -> None:
        """Set question, outcome and weight of each row; each example is a right and a wrong row."""
        places = {question: place for place, question in enumerate(questions)}
        self._place = np.array([places[example.question] for example in examples] * 2)
        self._right = np.repeat([1, 0], len(examples))
        right = np.array([example.right for example in examples])
        weight = np.array([example.weight for example in examples])
        self._weight = np.r_[weight * right, weight * (1 - right)]

    def _set_design(self, examples: Sequence[_Example], questions: Sequence[str]) -> None:
        """Set the matrix of rows x (part, feature of the question)."""
        from scipy.sparse import csr_matrix, hstack

        features: Any = csr_matrix(self._rows(questions))[self._place]
        amounts = [_amounts(example, self.parts) for example in examples]
        table: Any = csr_matrix(amounts * 2)
        columns = [features.multiply(table[:, [part]]) for part in range(len(self.parts))]
        self._design: Any = hstack(columns).tocsr()

    def _rows(self, questions: Sequence[str]) -> Floats:
        return np.insert(self._encode(questions), 0, 1.0, axis=1)

    def _scales(self, scale: float) -> Any:
        """Return the matrix that multiplies the weight of a question's words."""
        from scipy.sparse import diags

        width = self._design.shape[1] // len(self.parts)
        of_part = np.r_[1.0, np.full(width - 1, scale)]
        return diags(np.tile(of_part, len(self.parts)))

    def _choose_scale(self, seed: int) -> float:
        """Return the least scale that is within one standard error of the best."""
        from sklearn.model_selection import PredefinedSplit, cross_val_predict

        questions = int(self._place.max()) + 1
        fold_of_question = np.random.default_rng(seed).permutation(questions) % FOLDS
        losses = np.zeros((len(SCALES), questions))
        for index, scale in enumerate(SCALES):
            score: Any = cross_val_predict(
                _logistic(1e-2),
                self._design @ self._scales(scale),
                self._right,
                cv=PredefinedSplit(fold_of_question[self._place]),
                method="decision_function",
                params={"sample_weight": self._weight},
            )
            loss = (np.logaddexp(0.0, score) - self._right * score) * self._weight
            losses[index] = np.bincount(self._place, loss)
        best = losses[losses.sum(axis=1).argmin()]
        excess = losses - best
        standard_error = excess.std(axis=1, ddof=1) * math.sqrt(questions)
        good_enough = excess.sum(axis=1) <= standard_error
        return SCALES[int(good_enough.argmax())]


def _amounts(example: _Example, parts: Sequence[str]) -> list[float]:
    return [example.parts.get(part, 0.0) for part in parts]


def _logistic(tolerance: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=1.0, fit_intercept=False, max_iter=500, tol=tolerance)


def _learn(
    parts: Sequence[str],
    examples: Sequence[_Example],
    questions: Sequence[str],
    encoder: str | Encoder,
    seed: int,
) -> _Model:
    """Fit the model on one thread, so that equal seeds give equal weights."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        return _Model(parts, examples, fit_encoder(encoder, questions), seed)


# ── one worker ────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class _Lesson:
    """The file of a trained RouterDC: what it learnt from. Learning it again gives the same.

    Attributes:
        encoder: the encoder's name.
    """

    seed: int
    encoder: str
    observations: Observations
    version: int = VERSION


class RouterDC(Baseline):
    """RouterDC-lite: sends each question, and nothing else, to the worker that suits it.

    Args:
        pool: the workers; those that it learnt of are on offer.
        observations: what it learns from: single workers on a split that nothing is reported on.
        router: the file of a saved one, instead.
        seed: of the questions left out.
        encoder: what ``fit_encoder`` takes.

    Raises:
        ConfigError: neither or both of observations and router are given, nothing was decided, or
            nothing was learnt of a worker of the pool.
    """

    needs = Observations

    def __init__(
        self,
        pool: WorkerPool,
        *,
        observations: Observations | None = None,
        router: str | Path | None = None,
        seed: int = 0,
        encoder: str | Encoder = TFIDF,
    ) -> None:
        super().__init__(pool, "routerdc-lite")
        check_count("RouterDC.seed", seed, 0)
        if router is not None and observations is None:
            lesson = _read_lesson(router)
            observations, seed, encoder = lesson.observations, lesson.seed, lesson.encoder
        elif router is not None or observations is None:
            raise ConfigError(
                "RouterDC: expected either observations to train on or a trained router's file"
            )
        observations.best()  # raises if nothing was decided
        self._observations = observations
        self._seed = seed
        self._encoder = encoder
        self._shares = observations.shares()
        offered = [(ordinal, worker) for ordinal, worker in pool if worker.name in self._shares]
        self._ordinals = {worker.name: ordinal for ordinal, worker in offered}
        if not self._ordinals:
            raise ConfigError(
                f"RouterDC: trained on {list(self._shares)}, expected one of them in the pool: "
                f"{pool!r}"
            )
        examples = _comparisons(observations)
        self._model = _learn(list(self._shares), examples, observations.questions, encoder, seed)

    def choose(self, question: str) -> str:
        """Return the worker for a question; a tie goes to the one that is better overall."""
        scores = self._model.scores(question)
        return max(self._ordinals, key=lambda name: (scores[name], self._shares[name]))

    async def play(self, live: LiveEpisode) -> str | None:
        """Play one round of one step."""
        chosen = await asyncio.to_thread(self.choose, text_of(live.question))
        step = Step(self._ordinals[chosen], ALONE)
        return await live.answer_by(Workflow((step,)))

    def save(self, path: str | Path) -> None:
        """Write what was learnt from as JSON; an existing file is replaced.

        Raises:
            ConfigError: the encoder is a function.
            JournalError: the file could not be written.
        """
        if not isinstance(self._encoder, str):
            raise ConfigError(
                f"encoder {self._encoder!r}: a function cannot be saved; expected one that is named"
            )
        lesson = _Lesson(self._seed, self._encoder, self._observations)
        write_whole(Path(path), dumps(lesson) + "\n")


def _read_lesson(path: str | Path) -> _Lesson:
    try:
        lesson = load(_Lesson, json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}; expected a file that RouterDC.save wrote") from error
    if lesson.version != VERSION:
        raise ConfigError(
            f"{path}: got a router of version {lesson.version}, expected {VERSION}: train it again"
        )
    return lesson


def _comparisons(observations: Observations) -> list[_Example]:
    """Return an example for each pair of workers of which one was better on a question."""
    examples: list[_Example] = []
    for question, row in zip(observations.questions, observations.right, strict=True):
        shares = zip(observations.workers, row, strict=True)
        decided = [(name, share) for name, share in shares if share is not None]
        for (better, more), (worse, less) in permutations(decided, 2):
            if more > less:
                examples.append(_Example(question, {better: 1.0, worse: -1.0}, 1.0, more - less))
    return examples


# ── a team ────────────────────────────────────────────────────────────────────────────────────────
class MASRouter(Baseline):
    """MASRouter-lite: plays, for each question, the collaboration and team most likely to be right.

    The score of a team is a sum over its seats, so each seat gets the worker that adds most to it.

    Args:
        pool: the workers; those that it learnt of are on offer.
        trials: the collaborations that it learns from.
        observations: answers of single workers, which count as trials of the mode ``io``.
        seed: of the questions left out.
        encoder: what ``fit_encoder`` takes.

    Raises:
        ConfigError: there is nothing to learn from.
    """

    needs = (Observations, Trial)

    def __init__(
        self,
        pool: WorkerPool,
        *,
        trials: Sequence[Trial] = (),
        observations: Observations | None = None,
        seed: int = 0,
        encoder: str | Encoder = TFIDF,
    ) -> None:
        super().__init__(pool, "masrouter-lite")
        check_count("MASRouter.seed", seed, 0)
        known = list(trials)
        if observations is not None:
            known += _single_trials(observations)
        if not known:
            raise ConfigError("MASRouter: expected trials or observations to train on")
        examples: list[_Example] = []
        for trial in known:
            parts = _parts_of(trial.collaboration, trial.workers)
            examples.append(_Example(trial.question, parts, trial.right))
        known_parts = sorted({part for example in examples for part in example.parts})
        questions = [trial.question for trial in known]
        self._model = _learn(known_parts, examples, questions, encoder, seed)
        self._ordinals = {worker.name: ordinal for ordinal, worker in pool}

    def choose(self, question: str) -> tuple[Collaboration, tuple[str, ...]]:
        """Return the likeliest collaboration, and its workers' names.

        Raises:
            ConfigError: no collaboration was tried with the workers on offer.
        """
        scores = self._model.scores(question)
        teams: dict[str, tuple[str, ...]] = {}
        for name, collaboration in COLLABORATIONS.items():
            team = self._staff(collaboration, scores)
            if team is not None:
                teams[name] = team
        if not teams:
            raise ConfigError(
                f"MASRouter: no mode was tried with the workers on offer, {sorted(self._ordinals)}"
            )
        totals = {name: _score(_parts_of(name, team), scores) for name, team in teams.items()}
        chosen = max(totals, key=lambda name: totals[name])
        return COLLABORATIONS[chosen], teams[chosen]

    async def play(self, live: LiveEpisode) -> str | None:
        """Play one round, of the collaboration that is chosen."""
        chosen, team = await asyncio.to_thread(self.choose, text_of(live.question))
        workers = [self._ordinals[name] for name in team]
        return await live.answer_by(chosen.workflow(workers, live.question))

    def _staff(
        self, collaboration: Collaboration, scores: Mapping[str, float]
    ) -> tuple[str, ...] | None:
        """Return the best team of a collaboration; None: it was not tried with these workers."""
        if collaboration.name not in scores:
            return None
        team: list[str] = []
        for role in collaboration.roles:
            worth: dict[str, float] = {}
            for name in self._ordinals:
                parts = _parts_of_seat(collaboration.roles, role, name)
                if parts.keys() <= scores.keys():
                    worth[name] = _score(parts, scores)
            if not worth:
                return None
            team.append(max(worth, key=lambda name: worth[name]))
        return tuple(team)


def _score(parts: Mapping[str, float], scores: Mapping[str, float]) -> float:
    """Return what parts add to the chance to be right, in units of log odds."""
    return sum(weight * scores[part] for part, weight in parts.items())


def _parts_of(collaboration: str, team: Sequence[str]) -> dict[str, float]:
    """Return the parts of a team's score with their weights.

    They are the collaboration and those of each seat.
    """
    roles = COLLABORATIONS[collaboration].roles
    parts = {collaboration: 1.0}
    for role, name in zip(roles, team, strict=True):
        for part, weight in _parts_of_seat(roles, role, name).items():
            parts[part] = parts.get(part, 0.0) + weight
    return parts


def _parts_of_seat(roles: Sequence[str], role: str, name: str) -> dict[str, float]:
    """Return the parts that a seat adds: its worker in this role, and its worker in any role.

    Workers in one role count by their mean, and so do all workers, so that a large team is not
    better by its size.
    """
    return {f"{role}: {name}": 1 / roles.count(role), name: 1 / len(roles)}


def _single_trials(observations: Observations) -> list[Trial]:
    """Return answers of single workers as trials of the mode in which one worker is asked."""
    trials: list[Trial] = []
    for question, row in zip(observations.questions, observations.right, strict=True):
        for worker, share in zip(observations.workers, row, strict=True):
            if share is not None:
                trials.append(Trial(question, "io", (worker,), share))
    return trials
