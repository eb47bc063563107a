"""RouterDC's two losses and the descent on them (the losses are written down in ``routerdc``).

In: questions as rows, and what each worker got right. Out: a projection of the rows, and a vector a worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from openconductor.baselines.features import Floats
from openconductor.baselines.fitting import Adam, Ints, cluster

BATCH = 64
TINY = 1e-12


@dataclass(frozen=True, slots=True)
class ContrastiveSettings:
    """How the router is trained.

    K+, K-, H, lambda and the temperature are those of the original's published training script. The number of clusters,
    the size and the descent are ours (the script takes 1,000 steps over an encoder of 86 M parameters).

    Attributes:
        best: K+, the most workers that a question is drawn to.
        worst: K-, the most workers that it is pushed away from; right on at most half of its samples.
        others: H, the questions of other clusters in the sample-sample loss.
        clusters: N, the number of clusters.
        weight: lambda, of the sample-sample loss.
        temperature: what cosines are divided by.
        size: the length of the learnt vectors.
        steps: of Adam, each on 64 questions.
        rate: its step size.
    """

    best: int = 3
    worst: int = 3
    others: int = 3
    clusters: int = 5
    weight: float = 1.0
    temperature: float = 1.0
    size: int = 32
    steps: int = 200
    rate: float = 0.02


def descend(
    rows_N_D: Floats,  # noqa: N803
    right_N_W: Floats,  # noqa: N803
    seed: int,
    settings: ContrastiveSettings,
) -> tuple[Floats, Floats]:
    """The projection and the workers' vectors at the end of the descent."""
    groups = cluster(rows_N_D, settings.clusters, seed=seed)
    rng = np.random.default_rng(seed)
    contrasts = _contrasts(right_N_W, rng, settings)
    features = rows_N_D.shape[1]
    parameters = (
        rng.normal(0.0, features**-0.5, (features, settings.size)),
        rng.normal(0.0, 1.0, (right_N_W.shape[1], settings.size)),
    )
    adam = Adam(parameters, settings.rate)
    for _ in range(settings.steps):
        batch = rng.permutation(len(rows_N_D))[:BATCH]
        triples = _draw_triples(rng, groups[batch], settings.others)
        _, gradients = contrastive_loss(parameters, rows_N_D[batch], contrasts[batch], triples, settings)
        adam.step(gradients)
    return parameters


class Triples(NamedTuple):
    """Questions to compare: ``anchor_M`` with ``same_M`` of its cluster against ``other_M_H`` of others.

    An anchor stands there once, and what it is compared with differs.
    """

    anchor: Ints
    same: Ints
    other: Ints


def contrastive_loss(
    parameters: tuple[Floats, Floats],
    rows_N_D: Floats,  # noqa: N803
    contrasts_N_W_W: Floats,  # noqa: N803
    triples: Triples,
    settings: ContrastiveSettings,
) -> tuple[float, tuple[Floats, Floats]]:
    """Both losses of a batch, and their gradients.

    Args:
        parameters: ``(projection_D_E, embeddings_W_E)``.
        rows_N_D: the questions.
        contrasts_N_W_W: 1 where the first worker is among a question's best and the second among its worst.
        triples: what the sample-sample loss compares, as places in the batch.
        settings: the weight and the temperature.

    Returns:
        The mean loss a question, and one gradient a parameter.
    """
    projection, embeddings = parameters
    questions, lengths = unit_rows(rows_N_D @ projection)
    workers, sizes = unit_rows(embeddings)
    scores = questions @ workers.T / settings.temperature
    # Sample-LLM: -log(e^s+ / (e^s+ + sum of e^s-)) for each best worker that has a worst one beside it.
    exponents = np.exp(scores)
    worst = np.einsum("nwv,nv->nw", contrasts_N_W_W, exponents)  # the sum over e^s- for each best one
    counted = contrasts_N_W_W.any(axis=2)
    share = np.where(counted, worst / (exponents + worst), 0.0)  # 1 - the softmax of the best one
    loss = -np.log1p(-share).sum() / len(rows_N_D)
    pushed = np.where(counted, 1 / (exponents + worst), 0.0)[:, :, None] * contrasts_N_W_W
    by_score = (pushed.sum(axis=1) * exponents - share) / len(rows_N_D) / settings.temperature
    by_question = by_score @ workers
    by_worker = by_score.T @ questions
    # Sample-sample: the same over the cosines of questions.
    if len(triples.anchor):
        compared = np.concatenate([triples.same[:, None], triples.other], axis=1)
        anchors = questions[triples.anchor]
        cosines = np.einsum("me,mhe->mh", anchors, questions[compared]) / settings.temperature
        softmax = np.exp(cosines)
        softmax /= softmax.sum(axis=1, keepdims=True)
        scale = settings.weight / len(rows_N_D)
        loss += -scale * np.log(softmax[:, 0]).sum()
        softmax[:, 0] -= 1.0
        softmax *= scale / settings.temperature
        pulls = np.zeros((len(questions), len(questions)))
        pulls[triples.anchor[:, None], compared] = softmax
        by_question += pulls @ questions + pulls.T @ questions
    gradients = rows_N_D.T @ _through_unit(by_question, questions, lengths), _through_unit(by_worker, workers, sizes)
    return float(loss), gradients


def _contrasts(right_N_W: Floats, rng: np.random.Generator, settings: ContrastiveSettings) -> Floats:  # noqa: N803
    """``contrasts_N_W_W``: each of a question's best workers against each of its worst that did less well.

    Which of equal workers count is drawn for each question: a fixed order would favour workers by their ordinals.
    """
    count, width = right_N_W.shape
    contrasts = np.zeros((count, width, width))
    for row, shares in zip(contrasts, right_N_W, strict=True):
        seen = [int(place) for place in rng.permutation(width) if not np.isnan(shares[place])]
        ranked = sorted(seen, key=lambda place, shares=shares: -shares[place])
        best = [place for place in ranked[: settings.best] if shares[place] > 0]
        worst = [place for place in ranked[::-1][: settings.worst] if shares[place] <= 0.5]
        for high in best:
            for low in worst:
                row[high, low] = float(shares[low] < shares[high])
    return contrasts


def _draw_triples(rng: np.random.Generator, groups_N: Ints, others: int) -> Triples:  # noqa: N803
    """For each question that has them in the batch, one of its own cluster and some of others."""
    alike = np.equal(groups_N[:, None], groups_N[None, :])
    outside = np.not_equal(groups_N[:, None], groups_N[None, :])
    np.fill_diagonal(alike, val=False)
    draws = rng.random(alike.shape)  # the largest draws among those that qualify: a choice without repeats
    anchor = np.flatnonzero(alike.any(axis=1) & (outside.sum(axis=1) >= others))
    same = np.where(alike, draws, -1.0).argmax(axis=1)
    other = np.where(outside, draws, -1.0).argsort(axis=1)[:, ::-1][:, :others]
    return Triples(anchor, same[anchor], other[anchor])


def unit_rows(rows: Floats) -> tuple[Floats, Floats]:
    """Rows of length 1, and the lengths that they had; a row of 0 stays one."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(lengths, TINY), lengths


def _through_unit(by_unit: Floats, unit: Floats, lengths: Floats) -> Floats:
    """The gradient by rows, of one by their unit vectors."""
    along = (by_unit * unit).sum(axis=1, keepdims=True)
    return np.where(lengths > TINY, (by_unit - along * unit) / np.maximum(lengths, TINY), 0.0)
