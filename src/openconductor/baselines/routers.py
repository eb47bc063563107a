"""Routers that learn from other questions: RouterDC-lite and MASRouter-lite, on scikit-learn.

In: Observations of single workers, or Trials of collaborations, of a split that nothing is reported
on. Out: Episodes of the worker or the team that is chosen.

RouterDC (Chen et al. 2024, arXiv 2409.19886) and MasRouter (Yue et al. 2025, arXiv 2502.11133) are
*lite* here: the encoder is frozen (TF-IDF by default) where theirs is trained or large, and both
are one logistic model: the score of a choice is a sum over its parts, each linear in the question's
vector.

- RouterDC's *sample-LLM* loss draws a question to the workers that answer it and away from those that do not. Here each
  such pair of workers is one comparison, and a part is a worker. Its *sample-sample* loss shapes an encoder that is
  trained, and goes with it.
- MasRouter learns a mode, roles and a worker a role by policy gradient, right answers less a weighted cost. Here Trials
  are drawn beforehand (``Explorer``) and a team's chance to be right is fitted to them. Parts are the mode, each worker
  in each role, and each worker.

How far the question's words count is chosen on questions left out: the least that is not worse than
the best by more than one standard error (Breiman et al. 1984, section 3.4.3). Where words say
nothing, one choice is made for all.
"""

# scikit-learn and scipy have no type stubs: what comes out of them may be of unknown type in this
# file.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import importlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openconductor.baselines.collaboration import COLLABORATIONS, Collaboration, Trial
from openconductor.baselines.observed import Observations, text_of
from openconductor.baselines.pools import Baseline, check_count
from openconductor.episode import Stage
from openconductor.errors import ConfigError
from openconductor.pool import WorkerPool
from openconductor.store.serialisation import dumps, load
from openconductor.store.storage import write_whole
from openconductor.tasks.instructions import ALONE
from openconductor.types import Step, Workflow

Floats = NDArray[np.float64]
Encoder = Callable[[Sequence[str]], Floats]
"""``encoder(texts_N) -> rows_N_D``, of unit length; 0 where nothing of a text is known."""

TFIDF = "tfidf"
HASHED = "hashed"
VERSION = 2
SCALES = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
"""How far a question's words count beside what a part is worth whatever is asked; 0 is one choice for all."""
FOLDS = 3
FEWEST = 20
"""Questions below which none can be left out: the words then count once."""

_WORDS = r"(?u)(?:(?<![\w)])[-−](?=\d))?\b\w+\b"
# Single letters and digits count, for they are whole answers, and so does the sign of a number: -5
# is not 5.


# ── texts as vectors ──────────────────────────────────────────────────────────────────────────────
def fit_encoder(encoder: str | Encoder, texts: Sequence[str]) -> Encoder:
    """The encoder that is named, fitted where it needs that; a function is its own encoder.

    Args:
        encoder: ``tfidf`` (words and pairs of words, fitted on the texts), ``hashed`` (the same in
            4,096 buckets, fitted on nothing), the name of a model of sentence-transformers, or a
            function.
        texts: of training; no others may be among them.

    Raises:
        ConfigError: there is no word in the texts, the encoder is neither a name nor a function, or
            its library or model is not there.
    """
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer

    if not isinstance(encoder, str):
        if not callable(encoder):
            raise ConfigError(
                f"encoder: got {encoder!r}, expected a name or a function from texts to rows"
            )
        return encoder
    words: dict[str, Any] = {"ngram_range": (1, 2), "token_pattern": _WORDS}
    if encoder == HASHED:
        vectorizer: Any = HashingVectorizer(n_features=4096, **words)
    elif encoder == TFIDF:
        try:
            vectorizer = TfidfVectorizer(max_features=2048, sublinear_tf=True, **words).fit(
                list(texts)
            )
        except ValueError as error:
            raise ConfigError(f"TF-IDF: {error}; expected texts with words") from error
    else:
        try:
            model: Any = importlib.import_module("sentence_transformers").SentenceTransformer(
                encoder
            )
        except (ImportError, OSError, ValueError) as error:
            raise ConfigError(
                f"encoder {encoder!r}: {error}; expected a model of sentence-transformers (pip install "
                f"sentence-transformers); the offline encoders are {TFIDF!r} and {HASHED!r}"
            ) from error
        options = {"normalize_embeddings": True, "show_progress_bar": False}
        return lambda texts: np.asarray(model.encode(list(texts), **options), dtype=np.float64)
    return lambda texts: np.asarray(vectorizer.transform(list(texts)).toarray(), dtype=np.float64)


# ── the model ─────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class _Example:
    """One choice on one question: its parts, the share of right answers, and how much it counts."""

    question: str
    parts: Mapping[str, float]
    right: float
    weight: float = 1.0


class _Model:
    """The logistic model: ``scores`` gives what each part adds to a choice on a question."""

    def __init__(
        self, parts: Sequence[str], examples: Sequence[_Example], encode: Encoder, seed: int
    ) -> None:
        from scipy.sparse import csr_matrix, hstack

        self.parts = list(parts)
        self._encode = encode
        if not examples:  # no two choices differ
            self._weights = np.zeros((len(parts), 1))
            return
        questions = list(dict.fromkeys(one.question for one in examples))
        place = {question: at for at, question in enumerate(questions)}
        # A share of right answers counts as both: each example is there once as right and once as
        # wrong.
        self._place = np.array([place[one.question] for one in examples] * 2)
        self._right = np.repeat([1, 0], len(examples))
        right, weight = np.array([(one.right, one.weight) for one in examples]).T
        self._weight = np.r_[weight * right, weight * (1 - right)]
        rows: Any = csr_matrix(self._rows(questions))[self._place]
        table: Any = csr_matrix(
            [[one.parts.get(part, 0.0) for part in parts] for one in examples] * 2
        )
        self._design: Any = hstack(
            [rows.multiply(table[:, [part]]) for part in range(len(parts))]
        ).tocsr()
        scales = self._scales(self._choose_scale(seed) if len(questions) >= FEWEST else 1.0)
        model = _logistic(1e-4).fit(self._design @ scales, self._right, sample_weight=self._weight)
        self._weights = (model.coef_ @ scales).reshape(len(parts), -1)

    def scores(self, question: str) -> dict[str, float]:
        """What each part adds for a question, in units of log odds."""
        row = self._rows([question])[0][: self._weights.shape[1]]
        return dict(zip(self.parts, (self._weights @ row).tolist(), strict=True))

    def _rows(self, questions: Sequence[str]) -> Floats:
        return np.insert(self._encode(questions), 0, 1.0, axis=1)

    def _scales(self, scale: float) -> Any:
        """The matrix that lets a question's words count ``scale`` times."""
        from scipy.sparse import diags

        width = self._design.shape[1] // len(self.parts)
        return diags(np.tile(np.r_[1.0, np.full(width - 1, scale)], len(self.parts)))

    def _choose_scale(self, seed: int) -> float:
        from sklearn.model_selection import PredefinedSplit, cross_val_predict

        questions = int(self._place.max()) + 1
        folds = PredefinedSplit(
            (np.random.default_rng(seed).permutation(questions) % FOLDS)[self._place]
        )
        weights, losses = {"sample_weight": self._weight}, np.zeros((len(SCALES), questions))
        for index, scale in enumerate(SCALES):
            table, how = self._design @ self._scales(scale), "decision_function"
            score: Any = cross_val_predict(
                _logistic(1e-2), table, self._right, cv=folds, method=how, params=weights
            )
            losses[index] = np.bincount(
                self._place, (np.logaddexp(0.0, score) - self._right * score) * self._weight
            )
        worse = losses - losses[losses.sum(axis=1).argmin()]
        allowed = worse.std(axis=1, ddof=1) * math.sqrt(questions)
        return next(
            scale
            for scale, more, most in zip(SCALES, worse.sum(axis=1), allowed, strict=True)
            if more <= most
        )


def _logistic(tolerance: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=1.0, fit_intercept=False, max_iter=500, tol=tolerance)


# ── what is saved ─────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class _Lesson:
    """What a router learns from, and how. A file holds this and not what was learnt: learning it again gives the same.

    Attributes:
        router: ``routerdc`` or ``masrouter``.
        encoder: the encoder's name; "" for a function.
    """

    router: str
    seed: int
    encoder: str
    observations: Observations | None = None
    trials: tuple[Trial, ...] = ()
    cost_weight: float = 0.0
    version: int = VERSION


class _Router(Baseline):
    """A baseline that learns a lesson: one that is given, or the one of a file at ``path``."""

    def __init__(
        self,
        pool: WorkerPool,
        router: str,
        path: str | Path | None,
        seed: int,
        encoder: str | Encoder,
        **learnt: Any,
    ) -> None:
        super().__init__(pool, f"{router.lower()}-lite")
        if path is None:
            check_count(f"{router}.seed", seed, 0)
            self._lesson = _Lesson(
                router.lower(), seed, encoder if isinstance(encoder, str) else "", **learnt
            )
        else:
            self._lesson = _read_lesson(path, router)
        self._encoder = self._lesson.encoder or encoder
        self._names = {worker.name: ordinal for ordinal, worker in pool}

    def _learn(
        self, parts: Sequence[str], examples: Sequence[_Example], questions: Sequence[str]
    ) -> _Model:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):  # sums in one order give equal weights for equal seeds
            return _Model(parts, examples, fit_encoder(self._encoder, questions), self._lesson.seed)

    def save(self, path: str | Path) -> None:
        """Write what was learnt from as JSON; an existing file is replaced.

        Raises:
            ConfigError: the encoder is a function.
            JournalError: the file could not be written.
        """
        if not self._lesson.encoder:
            raise ConfigError(
                f"encoder {self._encoder!r}: a function cannot be saved; expected one that is named"
            )
        write_whole(Path(path), dumps(self._lesson) + "\n")


def _read_lesson(path: str | Path, router: str) -> _Lesson:
    try:
        lesson = load(_Lesson, json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}; expected a file that {router}.save wrote") from error
    if (lesson.router, lesson.version) != (router.lower(), VERSION):
        raise ConfigError(
            f"{path}: got {lesson.router!r} of version {lesson.version}, expected {router.lower()!r} of {VERSION}: "
            "train it again"
        )
    return lesson


# ── one worker ────────────────────────────────────────────────────────────────────────────────────
class RouterDC(_Router):
    """RouterDC-lite: sends each question to the worker that suits it, and nothing else.

    Args:
        pool: the workers; of those that it learnt of, the ones in the pool are on offer.
        observations: what to learn from: single workers on a split that nothing is reported on.
        router: the file of a saved one, instead.
        seed: of the questions left out.
        encoder: what ``fit_encoder`` takes.

    Raises:
        ConfigError: neither or both of observations and router are given, nothing was decided, or
            nothing was learnt of a worker of the pool.
    """

    def __init__(
        self,
        pool: WorkerPool,
        *,
        observations: Observations | None = None,
        router: str | Path | None = None,
        seed: int = 0,
        encoder: str | Encoder = TFIDF,
    ) -> None:
        if (observations is None) == (router is None):
            raise ConfigError(
                "RouterDC: expected either observations to train on or a trained router's file"
            )
        super().__init__(pool, "RouterDC", router, seed, encoder, observations=observations)
        observations = self._lesson.observations
        if observations is None:
            raise ConfigError(f"{router}: no observations, expected some")
        observations.best()  # raises where nothing was decided
        self._shares = {
            name: share for name, share in observations.shares().items() if share is not None
        }
        self._offered = [name for name in self._shares if name in self._names]
        if not self._offered:
            raise ConfigError(
                f"RouterDC: trained on {list(self._shares)}, expected one of them in the pool: {pool!r}"
            )
        examples: list[_Example] = []
        for question, row in zip(observations.questions, observations.right, strict=True):
            known = [
                (name, share)
                for name, share in zip(observations.workers, row, strict=True)
                if share is not None
            ]
            examples += [
                _Example(question, {better: 1.0, worse: -1.0}, 1.0, more - less)
                for (better, more), (worse, less) in permutations(known, 2)
                if more > less
            ]
        self._model = self._learn(list(self._shares), examples, observations.questions)

    def choose(self, question: str) -> str:
        """The worker for a question; of several, the one that is better overall."""
        scores = self._model.scores(question)
        return max(self._offered, key=lambda name: (scores[name], self._shares[name]))

    async def play(self, stage: Stage) -> str | None:
        """One round of one step."""
        chosen = await asyncio.to_thread(self.choose, text_of(stage.question))
        return await stage.answer_by(Workflow((Step(self._names[chosen], ALONE),)))


# ── a team ────────────────────────────────────────────────────────────────────────────────────────
class MASRouter(_Router):
    """MASRouter-lite: plays, for each question, the collaboration and the team of the largest expected utility.

    A team is put together seat by seat, the seats still free being held by their likeliest workers.

    Args:
        pool: the workers; of those that it learnt of, the ones in the pool are on offer.
        trials: what to learn from; or
        observations: of single workers, which know of the mode of one worker alone, so that only
            its worker is learnt; with ``trials`` both count; or
        controller: the file of a saved one.
        seed: of the questions left out.
        encoder: what ``fit_encoder`` takes.
        cost_weight: right answers that one unit of the trials' cost is worth; above 0, a worker is
            not seated where no trial tells what that costs.

    Raises:
        ConfigError: there is nothing to learn from and no controller, or both; or cost is to be
            weighed and none is known (observations have none).
    """

    def __init__(
        self,
        pool: WorkerPool,
        *,
        trials: Sequence[Trial] | None = None,
        observations: Observations | None = None,
        controller: str | Path | None = None,
        seed: int = 0,
        encoder: str | Encoder = TFIDF,
        cost_weight: float = 0.0,
    ) -> None:
        if (trials is None and observations is None) == (controller is None):
            raise ConfigError(
                "MASRouter: expected either trials or observations to train on, or a trained controller's file"
            )
        if type(cost_weight) not in (int, float) or not 0 <= cost_weight < math.inf:
            raise ConfigError(
                f"MASRouter.cost_weight: got {cost_weight!r}, expected a number from 0"
            )
        seen = (*(trials or ()), *(_alone(observations) if observations is not None else ()))
        super().__init__(
            pool, "MASRouter", controller, seed, encoder, trials=seen, cost_weight=cost_weight
        )
        known = self._lesson.trials
        if not known:
            raise ConfigError("MASRouter: got no trials, expected some")
        examples = [
            _Example(one.question, _parts_of(one.collaboration, one.workers), one.right)
            for one in known
        ]
        parts = sorted({part for one in examples for part in one.parts})
        self._model = self._learn(parts, examples, [one.question for one in known])
        self._costs = _fit_costs(known) if self._lesson.cost_weight else None

    def choose(self, question: str) -> tuple[Collaboration, tuple[str, ...]]:
        """The collaboration that is worth most, and its workers' names.

        Raises:
            ConfigError: no collaboration can be staffed with the workers on offer, as far as was
                tried.
        """
        scores, costs = self._model.scores(question), self._costs

        def utility(one: Collaboration, team: Sequence[str]) -> float:
            score = sum(weight * scores[part] for part, weight in _parts_of(one.name, team).items())
            cost = (
                0.0
                if costs is None
                else sum(costs[part] * n for part, n in _seats_of(one.name, team).items())
            )
            return 1 / (1 + math.exp(-score)) - self._lesson.cost_weight * max(0.0, cost)

        found: list[tuple[float, Collaboration, tuple[str, ...]]] = []
        tried = scores if costs is None else costs
        for one in COLLABORATIONS.values():
            offered = [
                [name for name in self._names if f"{role}: {name}" in tried] for role in one.roles
            ]
            if one.name not in tried or not all(offered):
                continue
            seats = zip(one.roles, offered, strict=True)
            team = [
                max(names, key=lambda name, role=role: scores[f"{role}: {name}"])
                for role, names in seats
            ]
            for seat, names in enumerate(offered):
                teams = [[*team[:seat], name, *team[seat + 1 :]] for name in names]
                team = max(teams, key=lambda team, one=one: utility(one, team))
            found.append((utility(one, team), one, tuple(team)))
        if not found:
            raise ConfigError(
                f"MASRouter: no mode was tried with the workers on offer, {sorted(self._names)}"
            )
        return max(found, key=lambda choice: choice[0])[1:]

    async def play(self, stage: Stage) -> str | None:
        """One round, of the collaboration that is chosen."""
        chosen, team = await asyncio.to_thread(self.choose, text_of(stage.question))
        return await stage.answer_by(
            chosen.workflow([self._names[name] for name in team], stage.question)
        )


def _alone(observations: Observations) -> list[Trial]:
    """Single workers' outcomes as trials of the mode in which one worker is asked alone, at no known cost."""
    return [
        Trial(question, "io", (worker,), share)
        for question, row in zip(observations.questions, observations.right, strict=True)
        for worker, share in zip(observations.workers, row, strict=True)
        if share is not None
    ]


def _parts_of(collaboration: str, team: Sequence[str]) -> dict[str, float]:
    """What a team's score adds up, each with its weight: the collaboration, who sits in each role, who sits at all.

    Those in one role count by their mean, and so do all: a large team is no better for having more
    seats.
    """
    roles = COLLABORATIONS[collaboration].roles
    parts: defaultdict[str, float] = defaultdict(float, {collaboration: 1.0})
    for role, name in zip(roles, team, strict=True):
        parts[f"{role}: {name}"] += 1 / roles.count(role)
        parts[name] += 1 / len(team)
    return dict(parts)


def _seats_of(collaboration: str, team: Sequence[str]) -> Counter[str]:
    """What a team's cost adds up: the collaboration and each seat."""
    roles = COLLABORATIONS[collaboration].roles
    return Counter(
        [collaboration, *(f"{role}: {name}" for role, name in zip(roles, team, strict=True))]
    )


def _fit_costs(trials: Sequence[Trial]) -> dict[str, float]:
    """What each part adds to a trial's cost: least squares, with a ridge that is small beside one trial."""
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import Ridge

    priced = [trial for trial in trials if trial.cost is not None]
    if not priced:
        raise ConfigError("MASRouter.cost_weight: no trial has a cost, expected some that have")
    parts = DictVectorizer()
    table = parts.fit_transform([_seats_of(one.collaboration, one.workers) for one in priced])
    fitted = Ridge(alpha=1e-3, fit_intercept=False).fit(table, [one.cost for one in priced])
    return dict(zip(parts.get_feature_names_out(), fitted.coef_.tolist(), strict=True))
