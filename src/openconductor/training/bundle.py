"""Make a trained run the Conductor that ships with the package.

In: a run's folder (and its study's). Out: ``gym/bundled``: the checkpoint, its cold start, and the
record of the run that made it: recipe, curve, results, versions, a hash of the code. Run it as
``python -m openconductor.training.bundle runs/learn/seed-1 --study runs/learn/study.json``.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

import openconductor.gym
from openconductor.errors import ConfigError
from openconductor.training.checkpoint import COMPLETE, is_complete, whole_folder

RECORD = ("config.toml", "environment.json", "curves.jsonl", "results.json")


def bundle(run: Path, target: Path, *, study: Path | None = None) -> None:
    """Copy what a user needs of a finished run.

    Raises:
        ConfigError: the run is not finished.
        JournalError: the disk failed; the bundle that was there stays.
    """
    if not (run / "results.json").is_file() or not is_complete(run / "conductor"):
        raise ConfigError(f"run {run}: holds no results.json or no whole conductor/, expected a finished training")
    with whole_folder(target) as part:
        shutil.copytree(run / "conductor", part, dirs_exist_ok=True)
        shutil.copytree(run / "cold_start", part / "cold_start")
        (part / "run").mkdir()
        for name in RECORD:
            shutil.copy(run / name, part / "run" / name)
        if study is not None:
            shutil.copy(study, part / "run" / "study.json")
        (part / COMPLETE).unlink(missing_ok=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line of this module."""
    parser = argparse.ArgumentParser(description="Make a trained run the bundled Conductor.")
    parser.add_argument("run", type=Path, help="the folder of a finished run")
    parser.add_argument("--study", type=Path, help="the study.json that the run was chosen from")
    chosen = parser.parse_args(arguments)
    bundle(chosen.run, Path(openconductor.gym.__file__).parent / "bundled", study=chosen.study)


if __name__ == "__main__":
    main()
