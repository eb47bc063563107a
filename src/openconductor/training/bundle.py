"""Make a trained run the Conductor that ships with the package.

In: a run's folder (and its study's). Out: ``gym/bundled``: the checkpoint, its cold start, and the record of the run
that made it: recipe, curve, results, versions, a hash of the code. Run it as
``python -m openconductor.training.bundle runs/learn/seed-1 runs/learn/study.json``.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import openconductor.gym
from openconductor.errors import ConfigError
from openconductor.training.checkpoint import is_complete, whole_folder

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
        for path in (*(run / name for name in RECORD), *([study] if study is not None else [])):
            shutil.copy(path, part / "run" / path.name)


if __name__ == "__main__":
    run, *study = map(Path, sys.argv[1:])
    bundle(run, Path(openconductor.gym.__file__).parent / "bundled", study=study[0] if study else None)
