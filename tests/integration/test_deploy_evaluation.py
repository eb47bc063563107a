"""The Slurm script and the Kubernetes Job of deploy/: their commands join and write the tables."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.postgres_server import PostgresServer

DEPLOY = Path(__file__).parents[2] / "deploy"
SCRIPT = DEPLOY / "evaluate.sbatch"
RECIPE = 'systems = ["worker:maven", "conductor"]\nseed = 1\n[[task]]\nname = "gym"\nlimit = 6\n'
TABLES = ("table.json", "table.md", "table.csv")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder has a recipe, the path has ``openconductor``."""
    program = tmp_path / "bin" / "openconductor"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m openconductor "$@"\n')
    program.chmod(0o755)
    (tmp_path / "recipe.toml").write_text(RECIPE, "utf-8")
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)


def run_all(commands: Sequence[Sequence[str]], **environment: str) -> None:
    """Run commands at the same time; each must succeed."""
    running = [
        subprocess.Popen(command, env=os.environ | environment, stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    for process in running:
        _, error = process.communicate(timeout=200)
        assert process.returncode == 0, error


def tables_alone() -> list[bytes]:
    """Return the tables of one process."""
    run_all([["openconductor", "eval", "--config", "recipe.toml", "--out", "alone"]])
    return [Path("alone", name).read_bytes() for name in TABLES]


def job() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "evaluate.yaml").read_text("utf-8"))


@pytest.mark.slow
def test_the_tasks_of_the_slurm_script_share_an_evaluation(postgres: PostgresServer) -> None:
    command = ["sh", str(SCRIPT), "recipe.toml"]
    run_all([command] * 3, JOURNAL=postgres.new_place(), SLURM_ARRAY_JOB_ID="7")
    assert [Path("runs/7", name).read_bytes() for name in TABLES] == tables_alone()


@pytest.mark.slow
def test_the_pods_of_the_job_share_an_evaluation_and_its_last_command_writes_the_tables(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.new_place()
    (container,) = job()["spec"]["template"]["spec"]["containers"]
    commands: list[list[str]] = []
    for pod in range(3):
        given = [word.replace("$(JOURNAL)", url) for word in container["args"]]
        folder = str(tmp_path / f"pod-{pod}")
        commands.append(["openconductor", *[word.replace("/data", folder) for word in given]])
    run_all(commands)
    text = (DEPLOY / "evaluate.yaml").read_text("utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("#     openconductor eval")]
    last = line.lstrip("# ").replace("postgresql://USER@HOST/DATABASE", url)
    run_all([shlex.split(last)])
    expected = tables_alone()
    for folder in ("pod-0/run", "pod-1/run", "pod-2/run", "runs/evaluation"):
        assert [Path(folder, name).read_bytes() for name in TABLES] == expected


def test_the_job_needs_no_privilege_and_mounts_what_it_uses() -> None:
    spec = job()["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert (job()["apiVersion"], job()["kind"]) == ("batch/v1", "Job")
    assert spec["completions"] == spec["parallelism"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in pod["volumes"]
    }
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    assert environment["JOURNAL"].startswith("postgresql://")
    assert json.dumps(job()).count("password") == 0


def test_the_slurm_script_is_a_script_of_sh_with_its_options_first() -> None:
    subprocess.run(["sh", "-n", str(SCRIPT)], check=True)
    lines = SCRIPT.read_text("utf-8").splitlines()
    assert lines[0] == "#!/bin/sh"
    first_command = lines.index("set -eu")
    assert all(line.startswith("#") for line in lines[:first_command])
    ran = subprocess.run(["sh", str(SCRIPT), "recipe.toml"], capture_output=True, check=False)
    assert ran.returncode != 0
    assert b"JOURNAL" in ran.stderr
