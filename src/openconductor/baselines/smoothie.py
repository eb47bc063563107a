"""Smoothie-lite: takes one worker's answer by agreement, without grades.

The method is that of Guha et al. 2024, arXiv 2412.04692.

Answers' vectors are taken for noisy views of an unseen right one, l_i = l* + noise, independent
from worker to worker. So E|l_i - l_j|^2 = a_i + a_j, and each pair (j, k) of other workers says

    a_i = (D_ij + D_ik - D_jk) / 2,     D_ij the mean of |l_i - l_j|^2 over questions.

The mean of that over all pairs is the original's closed form. Here questions come one by one, so
the data set is what was observed before, and the vectors are TF-IDF of the answers by default,
where the original's are all-mpnet-base-v2's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

import numpy as np

from openconductor.baselines.observed import Observations
from openconductor.baselines.pools import Baseline, forgiving_pool, play_answers
from openconductor.baselines.routers import HASHED, TFIDF, Encoder, Floats, fit_encoder
from openconductor.config import one_of
from openconductor.episode import LiveEpisode
from openconductor.errors import ConfigError
from openconductor.pool import WorkerPool
from openconductor.tasks.instructions import ALONE
from openconductor.tasks.simulated import instructions_for
from openconductor.types import Step, Workflow, text_of

NEIGHBOURS = 20
"""The observed questions that belong to a neighbourhood beside the question itself."""


class Smoothie(Baseline):
    """Asks every worker, and takes the answer of the one that seems least noisy.

    Args:
        pool: three workers at least: two that differ do not say which of them is wrong.
        mode: ``independent``: one judgement for all questions; ``dependent``: one for each question
            and its neighbours.
        observations: answers to other questions of the same kind. The independent mode needs them;
            the dependent mode goes by a question's own answers alone if there are none.

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
    ) -> None:
        one_of("Smoothie.mode", mode, ("independent", "dependent"))
        if len(pool) < 3:
            raise ConfigError(f"Smoothie: got {len(pool)} workers, expected at least 3")
        super().__init__(forgiving_pool(pool), f"smoothie-lite, {mode}")
        self._workflow = Workflow(tuple(Step(worker, ALONE) for worker in pool.ordinals))
        self._noise: Floats | None = None
        self._encode: Encoder | None = None
        if observations is None:
            if mode == "independent":
                raise ConfigError(
                    "Smoothie.mode: 'independent' judges by a whole data set, expected "
                    "observations with answers"
                )
            self._encode_answers = fit_encoder(HASHED, ())
            return
        answers = _answers_in_order(pool, observations)
        known = [text for row in answers for text in row if text is not None]
        if not known:
            raise ConfigError(
                "Smoothie.observations: no answers of the pool's workers, expected some"
            )
        self._encode_answers = fit_encoder(TFIDF, known)
        self._distances = np.array([distances(row, self._encode_answers) for row in answers])
        if mode == "independent":
            self._noise = estimate_noise(mean_distances(self._distances))
        else:
            self._encode = fit_encoder(TFIDF, observations.questions)
            self._questions = self._encode(observations.questions)

    async def play(self, live: LiveEpisode) -> str | None:
        """Play one round, in which all workers answer side by side."""
        answers = await play_answers(live, self._workflow)
        is_answer = instructions_for(live.question).is_answer
        valid = {place: text for place, text in answers.items() if is_answer(text)}
        row = [valid.get(place) for place in range(len(self.pool))]
        noise = await asyncio.to_thread(self.noise, text_of(live.question), row)
        choices = valid or answers
        return choices[min(choices, key=lambda place: (noise[place], place))]

    def noise(self, question: str, answers: Sequence[str | None]) -> Floats:
        """Return how noisy each worker seems for a question, in the pool's order.

        Args:
            question: the question.
            answers: the workers' answers to it; None: no answer.
        """
        if self._noise is not None:
            return self._noise
        own = distances(answers, self._encode_answers)
        if self._encode is None:
            return estimate_noise(own)
        similarity = self._questions @ self._encode([question])[0]
        near = np.argsort(-similarity, kind="stable")[:NEIGHBOURS]
        return estimate_noise(mean_distances(np.concatenate([self._distances[near], own[None]])))


def distances(answers: Sequence[str | None], encoder: Encoder) -> Floats:
    """Return the squared distances between the vectors of one question's answers, ``D_W_W``.

    It is nan where an answer is missing.
    """
    vectors = encoder([answer or "" for answer in answers])
    vectors[[answer is None for answer in answers]] = np.nan
    apart = vectors[:, None] - vectors[None]
    return (apart**2).sum(axis=2)


def mean_distances(tables_N_W_W: Floats) -> Floats:  # noqa: N803
    """Return the mean over questions that both workers answered; nan: there are none."""
    return np.ma.masked_invalid(tables_N_W_W).mean(axis=0).filled(np.nan)


def estimate_noise(distances_W_W: Floats) -> Floats:  # noqa: N803
    """Return each worker's expected squared distance from the unseen right answer.

    It is the triplet formula above. An estimate may be below 0, as an unbiased one of something
    near 0 may; a worker in no known triplet gets infinity.

    >>> true = np.array([0.1, 0.2, 0.9])
    >>> estimate_noise(true[:, None] + true[None, :]).round(3).tolist()
    [0.1, 0.2, 0.9]
    """
    apart = distances_W_W
    noise_W_W_W = (apart[:, :, None] + apart[:, None, :] - apart[None]) / 2  # noqa: N806
    i, j, k = np.indices(noise_W_W_W.shape)
    noise_W_W_W[(i == j) | (i == k) | (j == k)] = np.nan
    return np.ma.masked_invalid(noise_W_W_W).mean(axis=(1, 2)).filled(np.inf)


def _answers_in_order(pool: WorkerPool, observations: Observations) -> list[list[str | None]]:
    """Return the observed answers in the pool's order; None: not observed, or no answer."""
    rows: list[list[str | None]] = []
    if not observations.answers:
        return rows
    for question, texts in zip(observations.questions, observations.answers, strict=True):
        is_answer = instructions_for(question).is_answer
        by_worker = dict(zip(observations.workers, texts, strict=True))
        row: list[str | None] = []
        for _, worker in pool:
            text = by_worker.get(worker.name)
            row.append(text if text is not None and is_answer(text) else None)
        rows.append(row)
    return rows
