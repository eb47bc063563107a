"""The numerical pieces of the trained routers: clusters, Adam, and an additive logistic model.

In: arrays. Out: arrays. Everything is seeded and runs on the CPU.
"""

# scikit-learn and scipy have no type stubs: what comes out of them may be of unknown type in this file.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from openconductor.baselines.features import Floats

Ints = NDArray[np.int64]
ITERATIONS = 300


@contextmanager
def one_thread() -> Generator[None]:
    """Hold linear algebra to one thread: the arrays are small, and threads that wait for each other cost 10 times that.

    Sums are then taken in one order, too, so that equal seeds give equal weights.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        yield


def cluster(rows_N_D: Floats, count: int, *, seed: int) -> Ints:  # noqa: N803
    """k-means: the cluster of each row, from 0; no more clusters than different rows."""
    from sklearn.cluster import KMeans

    different = len(np.unique(rows_N_D, axis=0))
    means = KMeans(n_clusters=min(count, different), n_init=4, random_state=seed)  # pyright: ignore[reportArgumentType]
    return np.asarray(means.fit_predict(rows_N_D), dtype=np.int64)


@dataclass(slots=True)
class Adam:
    """Adam (Kingma and Ba 2015, arXiv 1412.6980, algorithm 1), which changes arrays in place.

    Attributes:
        arrays: what is optimised.
        rate: the step size; the other constants are the paper's.
    """

    arrays: Sequence[Floats]
    rate: float = 0.01
    _first: list[Floats] = field(init=False)
    _second: list[Floats] = field(init=False)
    _steps: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._first = [np.zeros_like(array) for array in self.arrays]
        self._second = [np.zeros_like(array) for array in self.arrays]

    def step(self, gradients: Sequence[Floats]) -> None:
        """Take one step down the gradients, one an array."""
        self._steps += 1
        for place, gradient in enumerate(gradients):
            mean, square = self._first[place], self._second[place]
            np.add(0.9 * mean, 0.1 * gradient, out=mean)
            np.add(0.999 * square, 0.001 * gradient**2, out=square)
            scale = np.sqrt(square / (1 - 0.999**self._steps)) + 1e-8
            self.arrays[place][...] -= self.rate / (1 - 0.9**self._steps) * mean / scale


def fit_additive(
    rows_Q_D: Floats,  # noqa: N803
    place_N: Ints,  # noqa: N803
    parts_N_C: Floats,  # noqa: N803
    right_N: Floats,  # noqa: N803
    *,
    weight_decay: float | Floats,
    tolerance: float = 2e-9,
) -> Floats:
    """Fit a logistic model whose score is a sum over parts, each linear in what is known of the question.

    The score of trial n is the sum over c of ``parts[n, c] * (weights[c] . rows[place[n]])``; the loss is its
    cross-entropy against ``right`` plus half of ``weight_decay`` times the squared weights. It is convex, and L-BFGS
    ends at its minimum.

    Args:
        rows_Q_D: one row a question.
        place_N: each trial's question.
        parts_N_C: how often each part takes part in a trial.
        right_N: shares in [0, 1].
        weight_decay: in units of trials; one number, or one a column of the rows.
        tolerance: the descent ends where a step lowers the loss by less, relative to the loss.

    Returns:
        ``weights_C_D``.
    """
    from scipy.optimize import minimize
    from scipy.sparse import csr_matrix

    trials = len(place_N)
    shape = parts_N_C.shape[1], rows_Q_D.shape[1]
    # Trials are many and questions few: everything as wide as a row is done once a question.
    gather = csr_matrix((np.ones(trials), (place_N, np.arange(trials))), shape=(len(rows_Q_D), trials))

    def loss(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(shape)
        scores = additive_scores(rows_Q_D, place_N, parts_N_C, weights)
        slopes_Q_C = gather @ (parts_N_C * (_sigmoid(scores) - right_N)[:, None])  # noqa: N806
        gradient = slopes_Q_C.T @ rows_Q_D + weight_decay * weights
        entropy = log_loss(scores, right_N) * trials
        return entropy + float((weight_decay * weights**2).sum()) / 2, gradient.ravel()

    found = minimize(
        loss,
        np.zeros(shape[0] * shape[1]),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": ITERATIONS, "ftol": tolerance},
    )
    return np.asarray(found.x, dtype=np.float64).reshape(shape)


def additive_scores(
    rows_Q_D: Floats,  # noqa: N803
    place_N: Ints,  # noqa: N803
    parts_N_C: Floats,  # noqa: N803
    weights_C_D: Floats,  # noqa: N803
) -> Floats:
    """The scores of ``fit_additive``'s model, one a trial."""
    return np.einsum("nc,nc->n", (rows_Q_D @ weights_C_D.T)[place_N], parts_N_C)


def log_loss(scores_N: Floats, right_N: Floats) -> float:  # noqa: N803
    """The mean cross-entropy of logistic scores against shares, in nats."""
    return float(np.mean(np.logaddexp(0.0, scores_N) - right_N * scores_N))


def fit_costs(parts_N_C: Floats, costs_N: Floats) -> Floats:  # noqa: N803
    """What each part adds to a trial's cost: least squares, with a ridge that is small beside one trial."""
    size = parts_N_C.shape[1]
    solved = np.linalg.solve(parts_N_C.T @ parts_N_C + 1e-3 * np.eye(size), parts_N_C.T @ costs_N)
    return np.asarray(solved, dtype=np.float64)


def sigmoid(score: float) -> float:
    """The logistic function of one number."""
    return float(_sigmoid(np.asarray(score)))


def _sigmoid(scores: Floats) -> Floats:
    return np.exp(-np.logaddexp(0.0, -scores))
