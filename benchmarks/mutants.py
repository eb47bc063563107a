"""Mutation testing: measure which share of small mistakes in ``src`` the tests notice.

    python -m benchmarks.mutants --checkout . --mutants 200 --seed 0 --out mutants.jsonl

Statements of a checkout are drawn by the seed, and one thing is changed in each (``mutations.py``).
The tests that execute the changed line run until one fails: those of the file's own folder first,
then the quickest. They run in copies, so that the checkout stays as it is. The map of lines and
tests comes from one run of all tests under coverage and is kept beside ``--out``. Each mutant is a
line of ``--out``; the same command resumes from there. Needs ``coverage``, and takes hours.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from benchmarks.mutations import Mutation, header_end, mutate, mutations_of, statements

SOURCE = "src/openconductor"
PLUGIN = Path(__file__).with_name("mutant_tests.py")
STARTING = 60.0  # seconds that pytest may take beside the tests
MULTIPLE = 5.0  # how often their known time all tests of a mutant may take

COVERAGE = f"""\
[run]
parallel = true
core = ctrace
sigterm = true
context = ${{MUTANT_CONTEXT-}}
source = {SOURCE}
data_file = ${{MUTANT_DATA}}
disable_warnings = no-data-collected, module-not-imported, couldnt-parse, already-imported
"""


@dataclass(frozen=True)
class Mutant:
    """A mutation of a file of the checkout; ``lines`` are those whose tests are run."""

    number: int
    path: str
    mutation: Mutation
    lines: tuple[int, ...]


@dataclass(frozen=True)
class TestMap:
    """The passing tests with their seconds, and by file and line the places of the tests of it."""

    seconds: dict[str, float]
    lines: dict[str, dict[str, list[int]]]

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Return the tests to run: those of the mirrored folder first, then the quickest.

        A line that runs only when its module is imported is tried by all tests of the file.
        """
        of_file = self.lines.get(mutant.path, {})
        places = {place for line in mutant.lines for place in of_file.get(str(line), ())}
        if not places:
            places = {place for tests in of_file.values() for place in tests}
        names = list(self.seconds)
        mirror = "tests/unit/" + mutant.path.removeprefix(f"{SOURCE}/").rpartition("/")[0]
        tests = [names[place] for place in places]
        return sorted(tests, key=lambda name: (not name.startswith(mirror), self.seconds[name]))


# ── the checkout ──────────────────────────────────────────────────────────────────────────────────
def tracked_files(checkout: Path) -> list[str]:
    """Return the files that a commit of everything there would hold."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others"]
    listing = subprocess.run(
        [*command, "--exclude-standard"], cwd=checkout, capture_output=True, text=True, check=True
    )
    names = sorted(name for name in listing.stdout.split("\0") if name)
    return [name for name in names if (checkout / name).is_file()]


def digest_of(checkout: Path) -> str:
    """Return a hash of all files of source and tests."""
    digest = hashlib.sha256()
    for name in tracked_files(checkout):
        if name.startswith(("src/", "tests/")):
            digest.update(name.encode() + b"\0" + (checkout / name).read_bytes())
    return digest.hexdigest()[:16]


def copy_checkout(checkout: Path, folder: Path) -> Path:
    """Copy the files of a checkout into a new folder."""
    for name in tracked_files(checkout):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(checkout / name, target)
    return folder


def draw_mutants(checkout: Path, count: int, seed: int, only: str) -> list[Mutant]:
    """Draw mutants over the statements of the source, each statement alike often, at most once."""
    modules: dict[str, ast.Module] = {}
    places: list[tuple[str, int]] = []
    for name in tracked_files(checkout):
        if name.startswith(f"{SOURCE}/{only}") and name.endswith(".py"):
            modules[name] = ast.parse((checkout / name).read_text("utf-8"))
            places += [(name, place) for place in range(len(statements(modules[name])))]
    rng = random.Random(seed)
    rng.shuffle(places)
    mutants: list[Mutant] = []
    for name, place in places:
        if len(mutants) == count:
            break
        statement = statements(modules[name])[place]
        mutations = mutations_of(modules[name], statement)
        if mutations:
            operator = rng.choice(sorted({mutation.operator for mutation in mutations}))
            chosen = rng.choice([one for one in mutations if one.operator == operator])
            lines = {*range(chosen.line, chosen.last_line + 1)}
            lines |= {*range(statement.lineno, header_end(statement) + 1)}
            mutants.append(Mutant(len(mutants), name, chosen, tuple(sorted(lines))))
    return mutants


# ── running tests ─────────────────────────────────────────────────────────────────────────────────
class Runner:
    """Runs the tests of a copy of the checkout with the interpreter of the checkout."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        self.copy = copy_checkout(checkout, folder / "copy")
        self.folder = folder
        self.plugins = folder / "plugins"
        self.plugins.mkdir()
        shutil.copy2(PLUGIN, self.plugins)
        own = checkout / ".venv" / "bin" / "python"
        self.python = str(own) if own.exists() else sys.executable

    def run(
        self, arguments: Sequence[str], *, before: Sequence[str] = (), seconds: float, **more: str
    ) -> tuple[int | None, str]:
        """Run pytest; return its exit code (None: the deadline has passed) and what it printed."""
        paths = f"{self.plugins}{os.pathsep}{self.copy / 'src'}"
        environment = {**os.environ, **more, "PYTHONPATH": paths, "PYTHONHASHSEED": "0"}
        environment["OMP_NUM_THREADS"] = "1"
        command = [self.python, *before, "-m", "pytest", "-q", "-p", "mutant_tests"]
        command += ["-p", "no:cacheprovider", f"--basetemp={self.folder / 'tmp'}", *arguments]
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command,
                cwd=self.copy,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end_group(process)
            output.seek(0)
            return code, output.read().decode("utf-8", "replace")

    def run_tests(self, tests: dict[str, float]) -> tuple[str, str]:
        """Run tests until one fails; return the outcome, and the test or the end of the output."""
        listing = self.folder / "tests.json"
        listing.write_text(json.dumps(tests), "utf-8")
        failed = self.folder / "failed"
        failed.unlink(missing_ok=True)
        files = list(dict.fromkeys(name.partition("::")[0] for name in tests))
        code, output = self.run(
            ["-x", "--hypothesis-seed=0", *files],
            seconds=STARTING + MULTIPLE * sum(tests.values()),
            MUTANT_TESTS=str(listing),
            MUTANT_FAILED=str(failed),
        )
        if code is None:
            return "timeout", ""
        if code == 0:
            return "survived", ""
        if code == 5:
            raise SystemExit(
                f"pytest found none of the tests {list(tests)[:3]} …\n{output[-2000:]}"
            )
        if failed.exists():
            return "killed", failed.read_text("utf-8")
        return "killed", f"no test could run: {output.strip()[-300:]}"


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End what the tests left running."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


# ── the map of lines and tests ────────────────────────────────────────────────────────────────────
def load_map(path: Path, digest: str) -> TestMap | None:
    """Return the map in a file; None if there is none, or it is of another checkout."""
    if not path.is_file():
        return None
    stored = json.loads(gzip.decompress(path.read_bytes()))
    if stored["digest"] != digest:
        return None
    return TestMap(stored["seconds"], stored["lines"])


def make_map(runner: Runner, tests: Sequence[str], marker: str) -> TestMap:
    """Run the tests once under coverage."""
    settings = runner.folder / "coveragerc"
    settings.write_text(COVERAGE, "utf-8")
    record = runner.folder / "record.json"
    data_folder = runner.folder / "data"
    data_folder.mkdir()
    coverage_run = ["-m", "coverage", "run", f"--rcfile={settings}"]
    _, output = runner.run(
        ["-m", marker, "--continue-on-collection-errors", *tests],
        before=coverage_run,
        seconds=4 * 3600,
        MUTANT_RECORD=str(record),
        MUTANT_CONTEXT="",
        MUTANT_DATA=str(data_folder / "coverage"),
        COVERAGE_PROCESS_START=str(settings),
    )
    if not record.exists():
        raise SystemExit(f"the tests could not be run:\n{output[-3000:]}")
    print(output.strip().splitlines()[-1], file=sys.stderr)
    recorded = json.loads(record.read_text("utf-8"))
    return _join(recorded["seconds"], recorded["fixtures"], data_folder, runner.copy)


def _join(
    seconds: dict[str, float], fixtures: dict[str, list[str]], data_folder: Path, copy: Path
) -> TestMap:
    """Join what the processes of the run measured; a fixture's lines are those of all its tests."""
    import coverage

    users: dict[str, set[int]] = {}
    for place, name in enumerate(seconds):
        users[name] = {place}
        for fixture in fixtures.get(name, ()):
            users.setdefault(f"fixture {fixture}", set()).add(place)
    joined: dict[str, dict[int, set[int]]] = {}
    for path in sorted(data_folder.iterdir()):
        data = coverage.CoverageData(str(path))
        data.read()
        for file in data.measured_files():
            lines = joined.setdefault(Path(file).relative_to(copy).as_posix(), {})
            for line, contexts in data.contexts_by_lineno(file).items():
                for context in contexts:
                    lines.setdefault(line, set()).update(users.get(context, ()))
    as_json = {
        file: {str(line): sorted(places) for line, places in lines.items() if places}
        for file, lines in joined.items()
    }
    return TestMap(seconds, as_json)


# ── the mutants ───────────────────────────────────────────────────────────────────────────────────
class Trial:
    """Tries mutants, several at a time, each in a copy of its own."""

    def __init__(self, checkout: Path, test_map: TestMap, runners: Sequence[Runner]) -> None:
        self.checkout = checkout
        self.test_map = test_map
        self.unsound: set[str] = set()
        self.sound: set[str] = set()
        self.free: SimpleQueue[Runner] = SimpleQueue()
        for runner in runners:
            self.free.put(runner)

    def try_all(
        self, mutants: Iterable[Mutant], most_seconds: float, jobs: int
    ) -> Iterator[dict[str, object]]:
        """Yield a result for each mutant, as soon as it is known."""
        with ThreadPoolExecutor(jobs) as pool:
            futures = [pool.submit(self.try_one, mutant, most_seconds) for mutant in mutants]
            try:
                for future in as_completed(futures):
                    yield future.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def try_one(self, mutant: Mutant, most_seconds: float) -> dict[str, object]:
        """Run the tests of a mutant until one fails that passes without the mutation."""
        begun = time.monotonic()
        source = (self.checkout / mutant.path).read_text("utf-8")
        before, after, changed = mutate(source, mutant.mutation)
        tests = self.test_map.tests_of(mutant)
        runner = self.free.get()
        try:
            while True:
                chosen = self._within(tests, most_seconds)
                if not chosen:
                    status, killer = "untested", ""
                    break
                _write(runner.copy / mutant.path, changed)
                status, killer = runner.run_tests(chosen)
                _write(runner.copy / mutant.path, source)
                if killer not in chosen or self._is_sound(runner, killer):
                    break
        finally:
            _write(runner.copy / mutant.path, source)
            self.free.put(runner)
        return {
            "number": mutant.number,
            "status": status,
            "file": mutant.path,
            "line": mutant.mutation.line,
            "operator": mutant.mutation.operator,
            "before": before,
            "after": after,
            "killer": killer,
            "tests": len(chosen),
            "left_out": len(tests) - len(chosen),
            "seconds": round(time.monotonic() - begun, 1),
        }

    def _within(self, tests: Sequence[str], most_seconds: float) -> dict[str, float]:
        """Return as many of the tests, with their seconds, as fit into the time; at least one."""
        chosen: dict[str, float] = {}
        for name in tests:
            known = self.test_map.seconds[name]
            if name in self.unsound or (chosen and sum(chosen.values()) + known > most_seconds):
                continue
            chosen[name] = known
        return chosen

    def _is_sound(self, runner: Runner, test: str) -> bool:
        """Return True if a test passes by itself on the checkout as it is."""
        if test not in self.sound and test not in self.unsound:
            outcome, _ = runner.run_tests({test: self.test_map.seconds[test]})
            (self.sound if outcome == "survived" else self.unsound).add(test)
        return test in self.sound


def _write(path: Path, text: str) -> None:
    """Write a module, and forget its compiled form."""
    path.write_text(text, "utf-8")
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink(missing_ok=True)


# ── results ───────────────────────────────────────────────────────────────────────────────────────
def load_results(path: Path, head: dict[str, object]) -> list[dict[str, object]]:
    """Return the results in a file, which begins with this head; a new file gets it."""
    if not path.exists():
        path.write_text(json.dumps(head) + "\n", "utf-8")
        return []
    first, *results = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    if first != head:
        raise SystemExit(f"{path} holds other mutants: {first}; expected {head}, or another --out")
    return results


def show(results: Sequence[dict[str, object]]) -> None:
    """Print the share of the mutants that was killed, and each that was not."""
    counts = Counter(str(result["status"]) for result in results)
    alive = [result for result in results if result["status"] in ("survived", "untested")]
    for result in sorted(alive, key=lambda one: (str(one["file"]), int(str(one["line"])))):
        print(f"{result['file']}:{result['line']}  {result['operator']}, {result['status']}")
        print(f"  - {result['before']}\n  + {result['after']}")
    killed = counts["killed"] + counts["timeout"]
    share = killed / max(1, len(results))
    listed = ", ".join(f"{status} {count}" for status, count in sorted(counts.items()))
    print(f"killed {killed} of {len(results)} mutants ({share:.1%}): {listed}")


def main() -> None:
    """Make or load the map, try the mutants that have no result yet, and print all."""
    parser = argparse.ArgumentParser(description="Mutation testing of a checkout.")
    parser.add_argument("--checkout", type=Path, default=Path(), help="The checkout.")
    parser.add_argument("--mutants", type=int, default=200, help="How many.")
    parser.add_argument("--seed", type=int, default=0, help="Draws the mutants.")
    parser.add_argument("--out", type=Path, required=True, help="Results, as JSON lines.")
    parser.add_argument("--only", default="", help=f"A file or folder below {SOURCE}.")
    parser.add_argument("--tests", nargs="*", default=["tests"], help="The tests to run.")
    parser.add_argument("--marker", default="not slow", help="Which of them, as pytest's -m.")
    parser.add_argument("--most-seconds", type=float, default=60, help="Tests of one mutant.")
    parser.add_argument("--jobs", type=int, default=2, help="Mutants at a time.")
    options = parser.parse_args()
    checkout, out = options.checkout.resolve(), options.out.resolve()
    digest = digest_of(checkout)
    head: dict[str, object] = {"digest": digest, "seed": options.seed, "mutants": options.mutants}
    head |= {"only": options.only, "tests": options.tests, "most_seconds": options.most_seconds}
    results = load_results(out, head)
    known = {result["number"] for result in results}
    drawn = draw_mutants(checkout, options.mutants, options.seed, options.only)
    waiting = [mutant for mutant in drawn if mutant.number not in known]
    if waiting:
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            places = [Path(folder) / str(number) for number in range(options.jobs)]
            runners = [Runner(checkout, place) for place in places]
            kept = out.with_suffix(".map.json.gz")
            test_map = load_map(kept, digest)
            if test_map is None:
                print("running the tests once, under coverage", file=sys.stderr)
                test_map = make_map(runners[0], options.tests, options.marker)
                stored = {"digest": digest, "seconds": test_map.seconds, "lines": test_map.lines}
                kept.write_bytes(gzip.compress(json.dumps(stored).encode()))
            trial = Trial(checkout, test_map, runners)
            for result in trial.try_all(waiting, options.most_seconds, options.jobs):
                results.append(result)
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(result) + "\n")
                summary = f"{len(results)} of {len(drawn)}: {result['status']}"
                print(f"{summary} {result['file']}:{result['line']}", file=sys.stderr)
    show(results)


if __name__ == "__main__":
    main()
