"""The verdict on frauds and on honest planners whose truth is known, and its power.

    python -m benchmarks.verdict --seeds 100 --out verdict.jsonl [--case NAME ...] [--json]

Each case of ``verdict_cases`` is judged on each seed, with and without replays of its plans, and
with and without the planner asked. A line of the file is one seed of one case; what is there is not
judged again, so a run that was stopped continues. ``--power`` judges planners of known gain
instead: the labels for gains of 0 to 10 points, 200 to 3,000 questions, and two or ten rivals.
``--again`` judges with replays and the planner asked, and planning repeated; cases that only this
tells come first.

The bars: a fraud is certified in at most 2 of 100 seeds; an honest planner is called what it is in
at least 85, with replays, and never by a fraud's name.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.verdict_cases import CASES, FRAUD_NAMES, FRAUDS, REPEATED
from benchmarks.verdict_power import GAINS, QUESTIONS, RIVALS, judge_known

FEWEST_NAMED = 0.85
MOST_WRONG_NAMES = 0.01
CAUSE = "cause"
Key = tuple[str, int]
Judge = Callable[[str, int], dict[str, str]]
ALL = {**REPEATED, **CASES}


def read_lines(file: Path) -> dict[Key, dict[str, str]]:
    """Return the labels of each case and seed that a file holds; a broken last line is left out."""
    known: dict[Key, dict[str, str]] = {}
    if not file.is_file():
        return known
    for line in file.read_text("utf-8").splitlines():
        try:
            values = json.loads(line)
        except ValueError:
            continue
        known[values["case"], values["seed"]] = values["labels"]
    return known


def judge_case(name: str, seed: int) -> dict[str, str]:
    """Return the labels of a case, by what was known, and if the cause of a fraud was named."""
    labels: dict[str, str] = {}
    case = CASES[name]
    world = case.world(seed)
    for replays, asked in product((True, False), repeat=2):
        known = f"{'replays' if replays else 'no replays'}, {'asked' if asked else 'not asked'}"
        judgement = world.judge(replays=replays, asked=asked)
        labels[known] = judgement.label
        if replays and asked and name in FRAUDS:
            labels[CAUSE] = "named" if re.search(case.cause, judgement.line) else "not named"
    return labels


def judge_again(name: str, seed: int) -> dict[str, str]:
    """Return the label of a case whose planning was repeated, and if a fraud's cause was named."""
    case = ALL[name]
    judgement = case.world(seed).judge(asked=True, again=True)
    labels = {"planned again": judgement.label}
    if not case.labels:
        labels[CAUSE] = "named" if re.search(case.cause, judgement.line) else "not named"
    return labels


def judge_power(name: str, seed: int) -> dict[str, str]:
    """Return the label of a planner of known gain, named by gain, questions and rivals."""
    gain, questions, rivals = name.split("/")
    return {"": judge_known(float(gain), int(questions), int(rivals), seed)}


def judge_all(
    names: list[str], seeds: int, file: Path, judge: Judge = judge_case
) -> dict[Key, dict[str, str]]:
    """Judge every case on every seed, and keep each in the file as it is known."""
    known = read_lines(file)
    with file.open("a", encoding="utf-8") as lines:
        for seed, name in product(range(seeds), names):
            if (name, seed) in known:
                continue
            labels = judge(name, seed)
            known[name, seed] = labels
            lines.write(json.dumps({"case": name, "seed": seed, "labels": labels}) + "\n")
            lines.flush()
            print(f"{seed:4} {name}: {labels}", file=sys.stderr)
    return known


def count_labels(known: dict[Key, dict[str, str]], name: str) -> dict[str, Counter[str]]:
    """Return how often each label was given, by what was known."""
    counts: dict[str, Counter[str]] = {}
    for (case, _), labels in known.items():
        if case == name:
            for what, label in labels.items():
                counts.setdefault(what, Counter())[label] += 1
    return counts


def bars_of(known: dict[Key, dict[str, str]], names: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the bars of each case."""
    for name in names:
        counts = count_labels(known, name)
        if not counts:
            continue
        if not ALL[name].labels:
            yield from _bars_of_fraud(name, counts)
        else:
            yield from _bars_of_honest(name, counts)


def _bars_of_fraud(name: str, counts: dict[str, Counter[str]]) -> Iterator[dict[str, Any]]:
    case = ALL[name]
    causes = counts.pop(CAUSE)
    shares: list[float] = []
    for labels in counts.values():
        wrong = sum(count for label, count in labels.items() if not case.is_right(label))
        shares.append(wrong / labels.total())
    yield results.at_most(f"certified: {name}", max(shares), case.most)
    yield results.at_least(f"cause named: {name}", causes["named"] / causes.total(), FEWEST_NAMED)
    if case.never:
        share = max(labels[case.never] / labels.total() for labels in counts.values())
        yield results.at_most(f"called {case.never}: {name}", share, MOST_WRONG_NAMES)


def _bars_of_honest(name: str, counts: dict[str, Counter[str]]) -> Iterator[dict[str, Any]]:
    case = ALL[name]
    played = sum((labels for what, labels in counts.items() if "no" not in what[:2]), Counter())
    right = sum(count for label, count in played.items() if case.is_right(label))
    yield results.at_least(f"called right: {name}", right / played.total(), case.fewest)
    every = sum(counts.values(), Counter())
    slandered = sum(every[label] for label in FRAUD_NAMES) / every.total()
    yield results.at_most(f"called a fraud: {name}", slandered, 0.0)


def main() -> None:
    parser = results.arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="seeds of each case (default 100)")
    parser.add_argument("--out", type=Path, default=Path("verdict.jsonl"), help="kept labels")
    parser.add_argument("--case", action="append", choices=list(ALL), help="only this case")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--again", action="store_true", help="with planning repeated")
    way.add_argument("--power", action="store_true", help="planners of known gain instead")
    options = parser.parse_args()
    cases = ALL if options.again else CASES
    names = options.case or list(cases)
    judge = judge_again if options.again else judge_case
    if options.power:
        if options.case:
            parser.error("--power has planners of its own, so it takes no --case")
        names = ["/".join(map(str, one)) for one in product(GAINS, QUESTIONS, RIVALS)]
        judge = judge_power
    elif any(name not in cases for name in names):
        parser.error(f"--case: {', '.join(REPEATED)} require --again")
    known = judge_all(names, options.seeds, options.out, judge)
    bars = [] if options.power else list(bars_of(known, names))
    counts = {name: count_labels(known, name) for name in names}
    results.show({"bars": bars, "labels": counts, **results.machine()}, as_json=options.json)


if __name__ == "__main__":
    main()
