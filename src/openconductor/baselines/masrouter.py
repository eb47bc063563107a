"""MASRouter: a mode of collaboration and a worker for each of its roles, chosen by the question (arXiv 2502.11133).

In: Trials, collaborations that were played and graded on a training split. Out: a controller that is saved as JSON, and
Episodes of the collaboration that it picks.

As in the original (Yue et al. 2025), the controller is a cascade that maximises expected utility, right answers less
``cost_weight`` times cost: for each mode with its number of agents and their roles it picks a worker a seat, one after
the other, and then the mode whose team is worth most. What a team is worth is learnt: a logistic model of whether it is
right, whose score is a sum of parts, each linear in the question's vector: one for the collaboration, one for each
(role, worker), one for each worker. What it costs is a sum of parts, too.

What differs: the original learns a policy (a latent variable for the mode, a sequence of roles, a multinomial over
LLMs) by policy gradient while it plays, over descriptions of modes, roles and LLMs by a sentence encoder. Here the
trials are drawn uniformly beforehand (``explorer``) and the value of teams is fitted to them (its weight decay chosen
on questions left out), which is convex and can be learnt again from a journal without calling anyone. Roles come with
the mode: choosing between modes of one, two or three agents is choosing their number. A worker that was never tried in
a role is not picked for it, while the original's descriptions let it route to workers that it has not seen.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from openconductor.baselines.collaboration import COLLABORATIONS, Collaboration, collaboration_named
from openconductor.baselines.features import (
    TFIDF,
    Encoder,
    Floats,
    array_field,
    encoder_from_json,
    encoder_to_json,
    fit_encoder,
)
from openconductor.baselines.fitting import (
    Ints,
    additive_scores,
    fit_additive,
    fit_costs,
    log_loss,
    one_thread,
    sigmoid,
)
from openconductor.baselines.observed import Observations, expect, field, load_json, save_json, text_of
from openconductor.baselines.playing import Baseline, Stage
from openconductor.baselines.pools import check_count, check_kind, check_number
from openconductor.baselines.trials import Trial, trials_of_workers
from openconductor.errors import ConfigError
from openconductor.pool import WorkerPool

VERSION = 1
DECAYS = (100.0, 10.0, 1.0, 0.1, 0.01)
"""Weight decays that are tried on questions left out, the strongest first: it leaves a constant choice of team."""
CONSTANT_DECAY = 1.0
"""The most that holds back what a part is worth whatever is asked: teams differ also where questions say nothing."""
FOLDS = 3
ROUGH = 1e-5
"""Where fits that only compare decays end: their losses differ by more."""


class Controller:
    """What a team is worth, and the best one.

    Attributes:
        parts: what the model adds up: collaborations (``"chain-1"``), workers in roles (``"closer: maven"``) and
            workers wherever they sit (``"maven"``).
        encoder: texts to rows.
        weights: ``weights_C_D``, one row a part; the first column is what the part is worth whatever the question.
        costs: ``costs_C``, what each part adds to the cost.
        cost_weight: right answers that one unit of cost is worth.
    """

    def __init__(
        self,
        parts: Sequence[str],
        encoder: Encoder,
        weights_C_D: Floats,  # noqa: N803
        costs_C: Floats,  # noqa: N803
        cost_weight: float,
    ) -> None:
        self.parts = tuple(parts)
        self.encoder = encoder
        self.weights = weights_C_D
        self.costs = costs_C
        self.cost_weight = cost_weight

    def choose(self, question: str, among: Sequence[str]) -> tuple[Collaboration, tuple[str, ...]]:
        """The collaboration that is worth most, and its workers' names.

        Raises:
            ConfigError: no collaboration can be staffed with the workers on offer, as far as was tried.
        """
        scores = dict(zip(self.parts, self.weights @ _with_constant(self.encoder([question]))[0], strict=True))
        costs = dict(zip(self.parts, self.costs, strict=True))
        teams = [
            (one, team)
            for one in COLLABORATIONS
            if one.name in scores and (team := self._staff(one, among, scores, costs)) is not None
        ]
        if not teams:
            raise ConfigError(f"MASRouter: no mode was tried with the workers on offer, {sorted(among)}")
        return max(teams, key=lambda entry: self._utility(*entry, scores, costs))

    def _staff(
        self, one: Collaboration, among: Sequence[str], scores: Mapping[str, float], costs: Mapping[str, float]
    ) -> tuple[str, ...] | None:
        """A worker a seat, picked one after the other; seats still free are held by their likeliest workers."""
        offered = [[name for name in among if _part(seat.role, name) in scores] for seat in one.seats]
        if not all(offered):
            return None
        team = [
            max(names, key=lambda name, seat=seat: scores[_part(seat.role, name)])
            for seat, names in zip(one.seats, offered, strict=True)
        ]
        for place, names in enumerate(offered):
            others = team[:place], team[place + 1 :]
            team[place] = max(
                names,
                key=lambda name, others=others: self._utility(one, (*others[0], name, *others[1]), scores, costs),
            )
        return tuple(team)

    def _utility(
        self, one: Collaboration, team: Sequence[str], scores: Mapping[str, float], costs: Mapping[str, float]
    ) -> float:
        score = sum(weight * scores[part] for part, weight in _parts_of(one, team).items())
        cost = sum(weight * costs[part] for part, weight in _costs_of(one, team).items())
        return sigmoid(score) - self.cost_weight * max(0.0, cost)

    def save(self, path: str | Path) -> None:
        """Write the controller as JSON; raises ConfigError where its encoder is a plain function."""
        save_json(
            {
                "version": VERSION,
                "parts": list(self.parts),
                "encoder": encoder_to_json(self.encoder),
                "weights": self.weights.tolist(),
                "costs": self.costs.tolist(),
                "cost_weight": self.cost_weight,
            },
            path,
        )

    @classmethod
    def load(cls, path: str | Path) -> Controller:
        """Read a controller that ``save`` wrote.

        Raises:
            ConfigError: the file is none.
        """
        data = load_json(path)
        what = f"{path}: MASRouter"
        expect(data, what, VERSION)
        parts = cast("Sequence[str]", field(data, "parts", what))
        weights = array_field(data, "weights", what, len(parts), None)
        costs = array_field(data, "costs", what, len(parts))
        cost_weight = float(array_field(data, "cost_weight", what))
        encoder = encoder_from_json(cast("Mapping[str, Any]", field(data, "encoder", what)))
        return cls(parts, encoder, weights, costs, cost_weight)


def fit_masrouter(
    trials: Sequence[Trial],
    seed: int = 0,
    *,
    encoder: str | Encoder = TFIDF,
    cost_weight: float = 0.0,
) -> Controller:
    """Train a controller; the same trials and seed give the same one.

    Args:
        trials: of a split that nothing is reported on.
        seed: of the folds of questions that the weight decay is chosen on.
        encoder: what turns questions into rows (``features.fit_encoder``), fitted on these questions alone.
        cost_weight: right answers that one unit of the trials' cost is worth; above 0, a worker is not seated where no
            trial tells what that costs.

    Raises:
        ConfigError: there are no trials, the weight is negative, or cost is to be weighed and none is known.
    """
    if not trials:
        raise ConfigError("MASRouter: got no trials, expected some")
    check_count("MASRouter.seed", seed, 0)
    check_number("MASRouter.cost_weight", cost_weight)
    if cost_weight:
        trials = _weighable(trials)
    questions = list(dict.fromkeys(trial.question for trial in trials))
    fitted = fit_encoder(encoder, questions)
    place = {question: index for index, question in enumerate(questions)}
    rows = _with_constant(fitted(questions))
    asked = np.array([place[trial.question] for trial in trials], dtype=np.int64)
    played = [(collaboration_named(trial.collaboration), trial.workers) for trial in trials]
    taken = [_parts_of(*team) for team in played]
    parts = sorted({part for parts in taken for part in parts})
    counts = _table(taken, parts)
    right = np.array([trial.right for trial in trials], dtype=float)
    priced = [index for index, trial in enumerate(trials) if trial.cost is not None]
    with one_thread():
        decay = _choose_decay((rows, asked, counts, right), seed)
        weights = fit_additive(rows, asked, counts, right, weight_decay=_decays(decay, rows.shape[1]))
        costs = fit_costs(
            _table([_costs_of(*played[index]) for index in priced], parts),
            np.array([trials[index].cost for index in priced], dtype=float),
        )
    return Controller(parts, fitted, weights, costs, cost_weight)


def _weighable(trials: Sequence[Trial]) -> list[Trial]:
    """The trials whose parts all have a known cost, if only from other trials: what is not known is not free.

    Raises:
        ConfigError: there is none.
    """
    priced = {part for trial in trials if trial.cost is not None for part in _seats_of(trial)}
    kept = [trial for trial in trials if priced.issuperset(_seats_of(trial))]
    if not kept:
        raise ConfigError("MASRouter.cost_weight: no trial has a cost, expected some that have")
    return kept


def _seats_of(trial: Trial) -> dict[str, float]:
    return _costs_of(collaboration_named(trial.collaboration), trial.workers)


def _choose_decay(data: tuple[Floats, Ints, Floats, Floats], seed: int) -> float:
    """The weight decay that says best what came of trials on questions left out; of equal ones the strongest."""
    rows, asked, counts, right = data
    if len(rows) < FOLDS:
        return DECAYS[0]
    fold_N = (np.random.default_rng(seed).permutation(len(rows)) % FOLDS)[asked]  # noqa: N806
    losses = dict.fromkeys(DECAYS, 0.0)
    for fold in range(FOLDS):
        inside, outside = fold_N != fold, fold_N == fold
        for decay in DECAYS:
            decays = _decays(decay, rows.shape[1])
            weights = fit_additive(
                rows, asked[inside], counts[inside], right[inside], weight_decay=decays, tolerance=ROUGH
            )
            scores = additive_scores(rows, asked[outside], counts[outside], weights)
            losses[decay] += log_loss(scores, right[outside])
    return min(DECAYS, key=lambda decay: losses[decay])


def _decays(decay: float, width: int) -> Floats:
    """One weight decay a column of the rows; the first column is the constant."""
    decays = np.full(width, decay)
    decays[0] = min(decay, CONSTANT_DECAY)
    return decays


def _parts_of(one: Collaboration, team: Sequence[str]) -> dict[str, float]:
    """What a team's score adds up, each with its weight: the collaboration, who sits in each role, who sits at all.

    Those in one role count by their mean, and so do all: a large team is no better for having more seats.
    """
    roles = Counter(seat.role for seat in one.seats)
    parts: defaultdict[str, float] = defaultdict(float, {one.name: 1.0})
    for seat, name in zip(one.seats, team, strict=True):
        parts[_part(seat.role, name)] += 1 / roles[seat.role]
        parts[name] += 1 / len(team)
    return dict(parts)


def _costs_of(one: Collaboration, team: Sequence[str]) -> dict[str, float]:
    """What a team's cost adds up: the collaboration and each seat."""
    seats = Counter(_part(seat.role, name) for seat, name in zip(one.seats, team, strict=True))
    return {one.name: 1.0, **seats}


def _part(role: str, worker: str) -> str:
    return f"{role}: {worker}"


def _table(taken: Sequence[Mapping[str, float]], parts: Sequence[str]) -> Floats:
    """``weights_N_C``: one row a team, one column a part."""
    column = {part: index for index, part in enumerate(parts)}
    table = np.zeros((len(taken), len(parts)))
    for row, of_one in zip(table, taken, strict=True):
        for part, weight in of_one.items():
            row[column[part]] = weight
    return table


def _with_constant(rows_N_D: Floats) -> Floats:  # noqa: N803
    return np.concatenate([np.ones((len(rows_N_D), 1)), rows_N_D], axis=1)


class MASRouter(Baseline):
    """Plays, for each question, the collaboration that the controller picks.

    Args:
        pool: the workers; of those that the controller knows, the ones in the pool are on offer.
        trials: what to train on; or
        observations: of single workers, which know of the mode of one worker alone, so that only its worker is
            learnt; with ``trials`` both count; or
        controller: a trained controller, or its file.
        seed: of the training.
        encoder: ``tfidf``, ``hashed``, the name of a model of sentence-transformers, or a function.
        cost_weight: right answers that one unit of the trials' cost is worth.

    Raises:
        ConfigError: there is nothing to train on and no controller, or both; or cost is to be weighed and none is
            known (observations have none).
    """

    def __init__(
        self,
        pool: WorkerPool,
        *,
        trials: Sequence[Trial] | None = None,
        observations: Observations | None = None,
        controller: Controller | str | Path | None = None,
        seed: int = 0,
        encoder: str | Encoder = TFIDF,
        cost_weight: float = 0.0,
    ) -> None:
        if (trials is None and observations is None) == (controller is None):
            raise ConfigError("MASRouter: expected either trials or observations to train on, or a trained controller")
        if controller is None:
            seen = [*(trials or ()), *(trials_of_workers(observations) if observations is not None else ())]
            controller = fit_masrouter(seen, seed, encoder=encoder, cost_weight=cost_weight)
        elif isinstance(controller, str | Path):
            controller = Controller.load(controller)
        check_kind("MASRouter.controller", controller, Controller)
        super().__init__(pool, "masrouter")
        self.controller = controller
        self._names = {worker.name: ordinal for ordinal, worker in pool}

    async def play(self, stage: Stage) -> str | None:
        """One round, of the collaboration that is chosen."""
        chosen, team = await asyncio.to_thread(self.controller.choose, text_of(stage.question), list(self._names))
        workflow = chosen.workflow([self._names[name] for name in team], stage.question)
        return (await stage.run(workflow)).answer
