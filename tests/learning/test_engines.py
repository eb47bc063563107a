"""FSDP and ZeRO learn what plain processes learn, and go on from their own checkpoints alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from openconductor import Conductor
from openconductor.gym.workers import gym_pool

pytestmark = [pytest.mark.train, pytest.mark.timeout(1800)]
SHARDED = ["FSDP2", "ZeRO-2", "ZeRO-3"]


@pytest.fixture(scope="module")
def trained(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of ``engines.py``."""
    folder = tmp_path_factory.mktemp("engines")
    script = Path(__file__).with_name("engines.py")
    path = f"{root / 'src'}{os.pathsep}{root}"
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
    log = (folder / "log.txt").open("w")
    with log:
        subprocess.run(
            [sys.executable, str(script), str(folder)],
            env=environment,
            stdout=log,
            stderr=log,
            check=True,
        )
    return folder


def ended(trained: Path, name: str) -> str:
    """What ended a training of the first process; "" is nothing."""
    if name.startswith("ZeRO") and find_spec("deepspeed") is None:
        pytest.skip("needs the extra 'deepspeed'")
    return json.loads((trained / "errors.json").read_text("utf-8"))[name]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "conductor" / "model.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["", " resumed", " adapters"])
@pytest.mark.parametrize("engine", SHARDED)
def test_an_engine_learns_the_weights_of_plain_processes_and_saves_each_once(
    trained: Path, engine: str, kind: str
) -> None:
    assert ended(trained, f"{engine}{kind}") == ""
    plain = weights(trained / f"plain{kind}")
    sharded = weights(trained / f"{engine}{kind}")
    assert sharded.keys() == plain.keys() and "lm_head.weight" not in plain
    for name, weight in plain.items():
        assert (sharded[name] - weight).abs().max() <= 1e-6, name
    start = load_file(trained / f"plain{kind}" / "cold_start" / "model.safetensors")
    assert any((weight - start[name]).abs().max() > 1e-5 for name, weight in plain.items())
    conductor = Conductor(str(trained / f"{engine}{kind}" / "conductor"), pool=gym_pool(0))
    assert conductor.ask_sync("Sort the list [3, 1, 2].").rounds


@pytest.mark.slow
@pytest.mark.parametrize("change", ["plain to FSDP2 by 2", "FSDP2 to plain by 2"])
def test_a_run_does_not_go_on_with_another_engine(trained: Path, change: str) -> None:
    before, _, after, *_ = change.split()
    assert f"requires the engine {before}, got {after} with 2" in ended(trained, change)


@pytest.mark.slow
def test_a_run_of_fsdp_does_not_go_on_with_another_type_of_state_dict(trained: Path) -> None:
    wanted = "requires the engine FSDP2 and fsdp_state_dict_type FULL_STATE_DICT"
    assert f"{wanted}, got FSDP2 and SHARDED_STATE_DICT" in ended(trained, "FSDP2 in parts")


@pytest.mark.slow
def test_fsdp_goes_on_with_more_processes_and_zero_does_not(trained: Path) -> None:
    name = "FSDP2 to FSDP2 by 4"
    assert ended(trained, name) == ""
    plain = weights(trained / "plain")
    for key, weight in weights(trained / name).items():
        assert (weight - plain[key]).abs().max() <= 1e-6, key
    wanted = "requires the engine ZeRO-2 with 2 processes"
    assert f"{wanted}, got ZeRO-2 with 4" in ended(trained, "ZeRO-2 to ZeRO-2 by 4")
    assert f"{wanted}, got ZeRO-3 with 2" in ended(trained, "ZeRO-2 to ZeRO-3 by 2")
