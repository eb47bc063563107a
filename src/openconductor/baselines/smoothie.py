"""Smoothie: whose answer to take, judged by agreement and no grade (Guha et al. 2024, arXiv 2412.04692).

In: a pool, and answers to other questions as Observations. Out: Episodes of one round in which
every worker answers; the answer is that of the worker whose answers seem least noisy.

Answers' vectors are taken for noisy views of an unseen right one, l_i = l* + noise, independent
from worker to worker, so that E|l_i - l_j|^2 = a_i + a_j, and each pair (j, k) of other workers
says

    a_i = (D_ij + D_ik - D_jk) / 2,     D_ij the mean of |l_i - l_j|^2 over questions.

The mean of that over all pairs is the original's closed form. What differs: questions come one by
one, so the data set is what was observed before, and the vectors are TF-IDF of the answers by
default, the original's all-mpnet-base-v2's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

import numpy as np

from openconductor.baselines.observed import Observations, text_of
from openconductor.baselines.pools import Baseline, check_count, forgiving_pool, spoken
from openconductor.baselines.routers import HASHED, TFIDF, Encoder, Floats, fit_encoder
from openconductor.config import one_of
from openconductor.episode import LiveEpisode
from openconductor.errors import ConfigError
from openconductor.pool import WorkerPool
from openconductor.tasks.instructions import ALONE
from openconductor.tasks.simulated import instructions_for
from openconductor.types import Step, Workflow


class Smoothie(Baseline):
    """Asks every worker, and takes the answer of the one that seems least noisy of those that answered.

    Args:
        pool: three workers at least: two that differ do not say which of them is wrong.
        mode: ``independent``: one judgement for all questions; ``dependent``: one for each question
            and its neighbours.
        observations: answers to other questions of the same kind. The independent mode needs them;
            the dependent mode goes by a question's own answers alone where there are none.
        neighbours: how many observed questions belong to a neighbourhood beside the question
            itself; 0 is the k = 1 of the original's published scripts, which go by a question's own
            answers alone.
        encoder: of questions and answers, as ``fit_encoder`` takes it; default: ``tfidf`` where
            there is something to fit it on, else ``hashed``.

    Raises:
        ConfigError: a value is out of its range, or the observations have no answers of the pool's
            workers.
    """

    needs = Observations

    def __init__(
        self,
        pool: WorkerPool,
        *,
        mode: Literal["independent", "dependent"] = "dependent",
        observations: Observations | None = None,
        neighbours: int = 20,
        encoder: str | Encoder | None = None,
    ) -> None:
        one_of("Smoothie.mode", mode, ("independent", "dependent"))
        if len(pool) < 3:
            raise ConfigError(f"Smoothie: got {len(pool)} workers, expected at least 3")
        if mode == "independent" and observations is None:
            raise ConfigError(
                "Smoothie.mode: 'independent' judges by a whole data set, expected observations with answers"
            )
        check_count("Smoothie.neighbours", neighbours, 0)
        super().__init__(forgiving_pool(pool), f"smoothie-lite, {mode}")
        self._workflow = Workflow(tuple(Step(worker, ALONE) for worker in pool.ordinals))
        self._neighbours = neighbours
        answers = _by_worker(pool, observations) if observations is not None else []
        known = [text for row in answers for text in row if text is not None]
        if observations is not None and not known:
            raise ConfigError(
                "Smoothie.observations: no answers of the pool's workers, expected some"
            )
        self._encode_answers = fit_encoder(encoder or (TFIDF if known else HASHED), known)
        self._distances = np.array([distances(row, self._encode_answers) for row in answers])
        self._noise = (
            estimate_noise(mean_distances(self._distances)) if mode == "independent" else None
        )
        self._encode: Encoder | None = None
        if observations is not None and mode == "dependent":
            self._encode = fit_encoder(encoder or TFIDF, observations.questions)
            self._questions = self._encode(observations.questions)

    async def play(self, stage: LiveEpisode) -> str | None:
        """One round, in which all workers answer side by side."""
        said = await spoken(stage, self._workflow)
        if said is None:
            return None
        words = instructions_for(stage.question)
        answering = [place for place, text in said.items() if words.is_answer(text)]
        answers = [said[place] if place in answering else None for place in range(len(self.pool))]
        noise = await asyncio.to_thread(self.noise, text_of(stage.question), answers)
        return said[min(answering or said, key=lambda place: (noise[place], place))]

    def noise(self, question: str, answers: Sequence[str | None]) -> Floats:
        """How noisy each worker seems for a question, in the pool's order.

        Args:
            question: the question.
            answers: what the workers answer to it; None where one did not.
        """
        if self._noise is not None:
            return self._noise
        own = distances(answers, self._encode_answers)
        if self._encode is None:
            return estimate_noise(own)
        near = np.argsort(-(self._questions @ self._encode([question])[0]), kind="stable")[
            : self._neighbours
        ]
        return estimate_noise(mean_distances(np.concatenate([self._distances[near], own[None]])))


def distances(answers: Sequence[str | None], encoder: Encoder) -> Floats:
    """The squared distances between the vectors of one question's answers, ``D_W_W``; nan where one is missing."""
    vectors = encoder([answer or "" for answer in answers])
    vectors[[answer is None for answer in answers]] = np.nan
    return ((vectors[:, None] - vectors[None]) ** 2).sum(axis=2)


def mean_distances(tables_N_W_W: Floats) -> Floats:  # noqa: N803
    """The mean over questions, of those in which both workers answered; nan where there are none."""
    return np.ma.masked_invalid(tables_N_W_W).mean(axis=0).filled(np.nan)


def estimate_noise(distances_W_W: Floats) -> Floats:  # noqa: N803
    """Each worker's expected squared distance from the unseen right answer, by the triplet formula above.

    An estimate may be below 0, as an unbiased one of something near 0 may; a worker in no triplet
    that is known gets infinity.

    >>> true = np.array([0.1, 0.2, 0.9])
    >>> estimate_noise(true[:, None] + true[None, :]).round(3).tolist()
    [0.1, 0.2, 0.9]
    """
    apart = distances_W_W
    said_W_W_W = (apart[:, :, None] + apart[:, None, :] - apart[None]) / 2  # noqa: N806
    i, j, k = np.indices(said_W_W_W.shape)
    said_W_W_W[(i == j) | (i == k) | (j == k)] = np.nan
    return np.ma.masked_invalid(said_W_W_W).mean(axis=(1, 2)).filled(np.inf)


def _by_worker(pool: WorkerPool, observations: Observations) -> list[list[str | None]]:
    """The observed answers in the pool's order; None of a worker that was not observed or did not answer."""
    found: list[list[str | None]] = []
    for question, row in zip(
        observations.questions, observations.answers, strict=bool(observations.answers)
    ):
        said = dict(zip(observations.workers, row, strict=True))
        texts = [said.get(worker.name) for _, worker in pool]
        words = instructions_for(question)
        found.append(
            [text if text is not None and words.is_answer(text) else None for text in texts]
        )
    return found
