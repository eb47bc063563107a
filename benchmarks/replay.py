"""Compare trainings over a table of recorded letters with fixed rules.

    python -m benchmarks.replay RUN ...

The levels of the fixed rules are exact: ties count by their chance, and a vote of k is the mean of
all choices of k models. What a rule chooses, it chooses on the split ``train``.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean

from openconductor.config import read_toml
from openconductor.evaluation.statistics import bootstrap_mean
from openconductor.graders.choice import extract_choice
from openconductor.providers.replay_pool import Cells, read_table, skills_of, weigh_vote
from openconductor.store import read_store
from openconductor.training.curves import read_record

CALLS = (1.5, 2.0, 2.6, 3.1, 3.5, 4.0)
"""The most answers a question of the cascades that are shown."""
Models = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tally:
    """A vote: the chance that its letter is right, and how many models say that letter."""

    right: float
    agreeing: int


@dataclass(frozen=True, slots=True)
class Cascade:
    """Some models; where not all of them agree, further ones, and a weighted vote of all."""

    first: Models
    more: Models
    right: float
    calls: float


class Votes:
    """The votes of all choices of a table's models, over the questions of one split."""

    def __init__(self, path: Path, split: str) -> None:
        table = read_table(path)
        self.rows = [row for row in table.rows.values() if row["split"] == split]
        self.models = tuple(table.models)
        self.skills = skills_of(table)
        self._tallies: dict[tuple[Models, bool], list[Tally]] = {}

    def skill(self, model: str, row: Cells) -> float:
        """Return the accuracy of a model in the category of a question."""
        return self.skills.get((model, row["category"]), self.skills[model, ""])

    def count(self, models: Models, *, weighted: bool) -> list[Tally]:
        """Return the votes of some models, by question."""
        models = tuple(model for model in self.models if model in models)
        if (models, weighted) not in self._tallies:
            tallies = [self._vote(row, models, weighted=weighted) for row in self.rows]
            self._tallies[models, weighted] = tallies
        return self._tallies[models, weighted]

    def _vote(self, row: Cells, models: Models, *, weighted: bool) -> Tally:
        weights: defaultdict[str, float] = defaultdict(float)
        letters = [row[model].split("|")[0] for model in models]
        for model, letter in zip(models, letters, strict=True):
            if letter:
                weight = weigh_vote(self.skill(model, row)) if weighted else 1.0
                weights[letter] += weight
        if not weights:
            return Tally(0.0, 0)
        most = max(weights.values())
        tied = [letter for letter, weight in weights.items() if most - weight < 1e-9]
        right = 1 / len(tied) if row["answer"] in tied else 0.0
        return Tally(right, letters.count(tied[0]))

    def vote_of(self, size: int, *, weighted: bool = False) -> list[float]:
        """Return the chance that a vote of ``size`` models is right, by question."""
        choices = list(combinations(self.models, size))
        votes = [self.count(models, weighted=weighted) for models in choices]
        return [fmean(tally.right for tally in tallies) for tallies in zip(*votes, strict=True)]

    def cascade(self, first: Models, more: Models) -> Cascade:
        """Return how often a cascade is right, and what it takes."""
        right = calls = 0.0
        early = self.count(first, weighted=True)
        late = self.count(first + more, weighted=True)
        for before, after in zip(early, late, strict=True):
            agree = before.agreeing == len(first)
            right += before.right if agree else after.right
            calls += len(first) if agree else len(first + more)
        count = len(self.rows)
        return Cascade(first, more, right / count, calls / count)


def find_cascades(train: Votes) -> dict[float, Cascade]:
    """Return the cascade that is best on the questions to learn from, by the most calls."""
    cascades: list[Cascade] = []
    for size in (1, 2, 3):
        for first in combinations(train.models, size):
            others = [model for model in train.models if model not in first]
            for further in range(1, len(others) + 1):
                for more in combinations(others, further):
                    cascades.append(train.cascade(first, more))
    best: dict[float, Cascade] = {}
    for calls in CALLS:
        allowed = [cascade for cascade in cascades if cascade.calls <= calls]
        if allowed:
            best[calls] = max(allowed, key=lambda cascade: cascade.right)
    return best


def show_levels(train: Votes, held_out: Votes) -> None:
    """Print what fixed rules reach on held-out questions."""
    rows, skills = held_out.rows, held_out.skills
    best = max(held_out.models, key=lambda model: skills[model, ""])
    routed: list[float] = []
    for row in rows:
        model = max(held_out.models, key=lambda model: held_out.skill(model, row))
        routed.append(float(row[model].split("|")[0] == row["answer"]))
    alone = fmean(tally.right for tally in held_out.count((best,), weighted=False))
    show("best worker", alone, 1, best)
    show("router by category", fmean(routed), 1)
    for size in range(2, len(held_out.models) + 1):
        for weighted in (False, True):
            name = f"vote of {size}" + (", weighted" if weighted else "")
            show(name, fmean(held_out.vote_of(size, weighted=weighted)), size)
    for calls, chosen in find_cascades(train).items():
        cascade = held_out.cascade(chosen.first, chosen.more)
        models = " + ".join(cascade.first) + "; else " + " + ".join(cascade.more)
        show(f"cascade of at most {calls}", cascade.right, cascade.calls, models)


def show(name: str, right: float, calls: float, note: str = "") -> None:
    """Print one line of the table."""
    print(f"{name:28}{100 * right:6.1f} %{calls:7.2f} answers  {note}")


def read_run(folder: Path, letters: Mapping[str, str]) -> tuple[dict[str, float], float]:
    """Return 1 or 0 by held-out question of a run, planned greedily, and its answers a question.

    Answers are graded by the grader of today, so that runs of different days compare. A question
    whose answer could not be decided is left out.

    Args:
        folder: the run's.
        letters: the right letter by question.
    """
    greedy = read_record(folder / "results.json")["greedy"]
    right: dict[str, float] = {}
    with read_store(folder / "journal.sqlite") as journal:
        records = [record.value for record in journal.records()]
    for phase in ("greedy", "greedy, round 1"):
        for record in records:
            # An invalid second round leaves the answer before it standing.
            stands = record["training"] == phase and (phase == "greedy" or record["answer"])
            if stands and record["correct"] is not None:
                name = str(record["problem"])
                right[name] = float(extract_choice(record["answer"] or "") == letters[name])
    return right, greedy.get("rounds", greedy)["answers"]


def show_runs(folders: Sequence[Path], held_out: Votes) -> None:
    """Print each run, and the mean of all with its leads over votes of three and of as many."""
    letters = {row["id"]: row["answer"] for row in held_out.rows}
    names = list(letters)
    means: list[float] = []
    taken: list[float] = []
    by_question: list[list[float]] = [[] for _ in names]
    for folder in folders:
        right, answers = read_run(folder, letters)
        decided = [name for name in names if name in right]
        for place, name in enumerate(names):
            if name in right:
                by_question[place].append(right[name])
        means.append(fmean(right[name] for name in decided))
        taken.append(answers)
        undecided = len(names) - len(decided)
        show(folder.name, means[-1], answers, f"{undecided} undecided" if undecided else "")
    show(
        "mean",
        fmean(means),
        fmean(taken),
        f"range {100 * min(means):.1f} to {100 * max(means):.1f}",
    )
    as_many = round(fmean(taken))
    for size, weighted in ((3, False), (as_many, False), (as_many, True)):
        votes = held_out.vote_of(size, weighted=weighted)
        pairs = zip(by_question, votes, strict=True)
        leads = [fmean(runs) - vote for runs, vote in pairs if runs]
        interval = bootstrap_mean(leads)
        kind = f"{'weighted ' if weighted else ''}vote of {size}"
        bounds = f"{100 * interval.low:+.1f} to {100 * interval.high:+.1f}"
        print(f"over the {kind}: {100 * fmean(leads):+.1f} ({bounds}, 95 % over questions)")


def main() -> None:
    """Read the runs, and print them beside the fixed rules of their table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="folders of trainings over one table")
    arguments = parser.parse_args()
    config = read_toml(arguments.runs[0] / "config.toml")
    table = Path(config["data"]["path"])
    held_out = Votes(table, config["held_out"]["split"])
    print(f"{len(held_out.rows)} questions of the split {config['held_out']['split']}")
    show_runs(arguments.runs, held_out)
    show_levels(Votes(table, "train"), held_out)


if __name__ == "__main__":
    main()
