"""RouterDC: which worker suits a question, learnt by two contrastive losses (Chen et al. 2024, arXiv 2409.19886).

In: Observations of single workers. Out: a router that is saved as JSON, and Episodes of the one worker that it picks.

A question x and each worker k get a vector, so that a question lies near the workers that answer it and near questions
of its own kind. With s for a cosine over a temperature, the loss of a question is, added up,

    sample-LLM:     for each k+ of its best K+ workers     -log e^s(x,k+) / (e^s(x,k+) + sum over K- worst of e^s(x,k-))
    sample-sample:  for one x+ of its cluster, H x- outside  -log e^s(x,x+) / (e^s(x,x+) + sum over H of e^s(x,x-))

the second one with a weight. K+, K-, H, the weight and the temperature are those of the original's training script, or
sharper ones (the best worker against all that did less well), whichever does better on training questions left out.
Where neither is better there than the worker that is best overall, by more than one standard error, nothing is learnt,
and all questions go to that worker: a router of many features learns chance by heart, and would fall below it.

What differs: the original trains its encoder (mDeBERTa, 86 M parameters); here the encoder is frozen (TF-IDF by
default) and a linear projection of it is learnt, in numpy. The clusters are k-means on the encoder's vectors, not on a
t-SNE of them. A worst worker is compared only with best ones that did better, equal workers are drawn among, and what
was not observed is left out. A question without a known word goes to the worker that is best overall.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from openconductor.baselines.contrast import ContrastiveSettings, descend, unit_rows
from openconductor.baselines.features import (
    TFIDF,
    Encoder,
    Floats,
    array_field,
    encoder_from_json,
    encoder_to_json,
    fit_encoder,
)
from openconductor.baselines.fitting import one_thread
from openconductor.baselines.observed import Observations, expect, field, load_json, save_json, text_of
from openconductor.baselines.playing import Baseline, Stage
from openconductor.baselines.pools import check_count
from openconductor.baselines.single import alone
from openconductor.errors import ConfigError
from openconductor.pool import WorkerPool

VERSION = 1

CANDIDATES = (ContrastiveSettings(), ContrastiveSettings(best=1, worst=100, temperature=0.2))
"""The original's setting, and a sharper one for pools in which one worker knows what most do not."""
FOLDS = 3
FEWEST = 20
"""Different questions below which nothing can be left out: the original's setting is taken as it is."""


class ContrastiveRouter:
    """Says how near a question lies to each worker.

    Attributes:
        workers: the workers' names.
        encoder: texts to rows.
        projection: ``P_D_E``.
        embeddings: ``K_W_E``, one row a worker.
        overall: each worker's share of right answers in training, for questions of which nothing is known.
    """

    def __init__(
        self,
        workers: Sequence[str],
        encoder: Encoder,
        projection_D_E: Floats,  # noqa: N803
        embeddings_W_E: Floats,  # noqa: N803
        overall_W: Floats,  # noqa: N803
    ) -> None:
        self.workers = tuple(workers)
        self.encoder = encoder
        self.projection = projection_D_E
        self.embeddings = embeddings_W_E
        self.overall = overall_W

    def similarities(self, questions: Sequence[str]) -> Floats:
        """Cosines, one row a question, one column a worker; a row of 0 where nothing of a question is known."""
        return unit_rows(self.encoder(questions) @ self.projection)[0] @ unit_rows(self.embeddings)[0].T

    def choose(self, question: str, among: Collection[str]) -> str:
        """The nearest worker among those on offer; of several, the one that is better overall.

        Raises:
            ConfigError: none on offer was trained on.
        """
        offered = [place for place, worker in enumerate(self.workers) if worker in among]
        if not offered:
            raise ConfigError(f"RouterDC: trained on {list(self.workers)}, expected one of them among {sorted(among)}")
        return self.workers[self._nearest(self.similarities([question])[0], offered)]

    def choices(self, questions: Sequence[str]) -> list[int]:
        """The nearest worker of each question, by place, where all are on offer."""
        offered = range(len(self.workers))
        return [self._nearest(near, offered) for near in self.similarities(questions)]

    def _nearest(self, near_W: Floats, offered: Iterable[int]) -> int:  # noqa: N803
        return max(offered, key=lambda place: (near_W[place], self.overall[place]))

    def save(self, path: str | Path) -> None:
        """Write the router as JSON; raises ConfigError where its encoder is a plain function."""
        save_json(
            {
                "version": VERSION,
                "workers": list(self.workers),
                "encoder": encoder_to_json(self.encoder),
                "projection": self.projection.tolist(),
                "embeddings": self.embeddings.tolist(),
                "overall": self.overall.tolist(),
            },
            path,
        )

    @classmethod
    def load(cls, path: str | Path) -> ContrastiveRouter:
        """Read a router that ``save`` wrote.

        Raises:
            ConfigError: the file is none.
        """
        data = load_json(path)
        what = f"{path}: RouterDC"
        expect(data, what, VERSION)
        workers = cast("Sequence[str]", field(data, "workers", what))
        projection = array_field(data, "projection", what, None, None)
        embeddings = array_field(data, "embeddings", what, len(workers), projection.shape[1])
        overall = array_field(data, "overall", what, len(workers))
        encoder = encoder_from_json(cast("Mapping[str, Any]", field(data, "encoder", what)))
        return cls(workers, encoder, projection, embeddings, overall)


def fit_routerdc(
    observations: Observations,
    seed: int = 0,
    *,
    encoder: str | Encoder = TFIDF,
    settings: ContrastiveSettings | None = None,
) -> ContrastiveRouter:
    """Train a router; the same observations and seed give the same one.

    Args:
        observations: of single workers, by name; a worker of which nothing was decided is not among the choices.
        seed: of the start, the batches and the questions that are compared.
        encoder: what turns questions into rows (``features.fit_encoder``), fitted on these questions alone.
        settings: how to train, come what may; default: what does best on questions left out (see above).

    Raises:
        ConfigError: nothing was decided.
    """
    check_count("RouterDC.seed", seed, 0)
    observations = observations.decided()
    fitted = fit_encoder(encoder, observations.questions)
    rows = fitted(observations.questions)
    if settings is None:
        settings = _choose_settings(observations, seed, encoder)
    if settings is None:  # every question at no distance from any worker: the best overall is taken
        projection, embeddings = np.zeros((rows.shape[1], 1)), np.zeros((len(observations.workers), 1))
    else:
        right = np.array([[np.nan if one is None else one for one in row] for row in observations.right], dtype=float)
        with one_thread():
            projection, embeddings = descend(rows, right, seed, settings)
    shares = observations.shares()
    overall = np.array([shares[worker] or 0.0 for worker in observations.workers])
    return ContrastiveRouter(observations.workers, fitted, projection, embeddings, overall)


def _choose_settings(observations: Observations, seed: int, encoder: str | Encoder) -> ContrastiveSettings | None:
    """The candidate that gains most over the best worker on questions left out; None where none gains.

    A gain is one where it is above one standard error, the rule by which the simpler of two models is kept (Breiman et
    al. 1984, section 3.4.3; Hastie et al. 2009, section 7.10).
    """
    texts = sorted(set(observations.questions))
    if len(texts) < FEWEST:
        return CANDIDATES[0]
    drawn = cast("list[int]", (np.random.default_rng(seed).permutation(len(texts)) % FOLDS).tolist())
    fold = dict(zip(texts, drawn, strict=True))
    gains: dict[ContrastiveSettings, list[float]] = {settings: [] for settings in CANDIDATES}
    for left_out in range(FOLDS):
        inside = observations.rows(at for at, text in enumerate(observations.questions) if fold[text] != left_out)
        outside = observations.rows(at for at, text in enumerate(observations.questions) if fold[text] == left_out)
        if any(share is not None for row in inside.right for share in row):
            for settings in CANDIDATES:
                router = fit_routerdc(inside, seed, encoder=encoder, settings=settings)
                gains[settings] += _gains(router, inside.workers.index(inside.best()), outside)
    settings = max(gains, key=lambda one: sum(gains[one]))
    return settings if _is_gain(gains[settings]) else None


def _gains(router: ContrastiveRouter, best: int, outside: Observations) -> list[float]:
    """What a router's choice gets more than one worker does, of each question where both were decided."""
    gains: list[float] = []
    for chosen, row in zip(router.choices(outside.questions), outside.right, strict=True):
        ours, theirs = row[chosen], row[best]
        if ours is not None and theirs is not None:
            gains.append(ours - theirs)
    return gains


def _is_gain(gains: Sequence[float]) -> bool:
    """Whether a mean is above 0 by more than its standard error."""
    if len(gains) < 2:
        return False
    return float(np.mean(gains)) > float(np.std(gains, ddof=1)) / len(gains) ** 0.5


class RouterDC(Baseline):
    """Sends each question to the worker that the router picks, and nothing else.

    Args:
        pool: the workers; of those that the router knows, the ones in the pool are on offer.
        observations: what to train on: single workers on a split that nothing is reported on.
        router: a trained router, or its file, instead.
        seed: of the training.
        encoder: ``tfidf``, ``hashed``, the name of a model of sentence-transformers, or a function.

    Raises:
        ConfigError: neither or both of observations and router are given, or the router knows no worker of the pool.
    """

    def __init__(
        self,
        pool: WorkerPool,
        *,
        observations: Observations | None = None,
        router: ContrastiveRouter | str | Path | None = None,
        seed: int = 0,
        encoder: str | Encoder = TFIDF,
    ) -> None:
        if (observations is None) == (router is None):
            raise ConfigError("RouterDC: expected either observations to train on or a trained router")
        if observations is not None:
            router = fit_routerdc(observations, seed, encoder=encoder)
        elif isinstance(router, str | Path):
            router = ContrastiveRouter.load(router)
        if not isinstance(router, ContrastiveRouter):
            raise ConfigError(f"RouterDC.router: got {router!r}, expected a trained router or its file")
        super().__init__(pool, "routerdc")
        self.router = router
        self._names = {worker.name: ordinal for ordinal, worker in pool}
        if not set(self._names) & set(router.workers):
            raise ConfigError(
                f"RouterDC: trained on {list(router.workers)}, expected one of them in the pool: {list(self._names)}"
            )

    async def play(self, stage: Stage) -> str | None:
        """One round of one step."""
        chosen = await asyncio.to_thread(self.router.choose, text_of(stage.question), self._names)
        return (await stage.run(alone(self._names[chosen]))).answer
