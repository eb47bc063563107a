"""Trainings by several processes under each engine, forked from one parent that has imported torch.

In: a folder. Out: in it a run's folder for each training, and ``errors.json``: what ended each
training, by its name; "" is a training that went well.
"""

from __future__ import annotations

import faulthandler
import json
import os
import shutil
import socket
import sys
import traceback
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from tests.learning.runs import recipe
from tests.learning.two_processes import stored

from openconductor.errors import ConfigError
from openconductor.training import completions, run
from openconductor.training.grpo import ConductorTrainer

ENVIRONMENTS = {
    "plain": {},
    "ZeRO-2": {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2"},
    "ZeRO-3": {
        "ACCELERATE_USE_DEEPSPEED": "true",
        "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3",
        "ACCELERATE_DEEPSPEED_ZERO3_INIT": "true",
        "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL": "true",
    },
    "FSDP2": {
        "ACCELERATE_USE_FSDP": "true",
        "ACCELERATE_TORCH_DEVICE": "cpu",
        "FSDP_VERSION": "2",
        "FSDP_RESHARD_AFTER_FORWARD": "true",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
        "FSDP_CPU_RAM_EFFICIENT_LOADING": "true",
    },
}
"""What ``accelerate launch`` sets, as in ``recipes/accelerate``."""
RECIPE = """
save_every = 1
cold_start = { steps = 2, batch = 8, micro_batch = 2, learning_rate = 5e-5 }
prompt = { template = "compact", access = "index" }
rollout = { iterations = 2, questions = 2, completions = 8, max_tokens = 72 }
start = { prompts = 4, workflows = 4, validity = 0.0 }
held_out = { questions = 4 }
[optim]
learning_rate = 1e-5
schedule = "constant"
warmup = 0.0
micro_batch = 2
bf16 = false
"""
WHOLE = f"""{RECIPE}
[imitate]
rounds = 1
questions = 10
completions = 3
steps = 2
batch = 8
micro_batch = 2
learning_rate = 5e-5
"""
FASTER = RECIPE.replace("5e-5", "2.5e-4").replace("1e-5", "5e-5")
ADAPTERS = "model = { lora_rank = 2 }\n" + FASTER
HANGS_S = 240


def prepare(engine: str) -> None:
    """Let an engine run on CPUs: accelerate keeps FSDP from them, and DeepSpeed would compile."""
    if engine == "FSDP2":
        torch.distributed.init_process_group("gloo")
        PartialState._prepare_backend = lambda *_: ("gloo", DistributedType.MULTI_GPU)
        run.check_engine = lambda: None
    elif engine != "plain":
        import_module("deepspeed.comm.torch").build_shm_op = lambda: None


def work(text: str, engine: str, folder: Path, *, resume: bool) -> str:
    """Train in this process, which is one of several; return what ended it.

    Many tokens end a completion, so that no two processes are done with theirs at the same time.
    """
    faulthandler.dump_traceback_later(HANGS_S, exit=True)
    ConductorTrainer._generate_single_turn = stored
    completions.end_ids = lambda model: frozenset(range(0, model.config.vocab_size, 40))
    prepare(engine)
    try:
        run.train(recipe(text), folder, resume=resume)
    except ConfigError as error:
        return str(error)
    return ""


def train(text: str, engine: str, folder: Path, *, processes: int = 2, resume: bool = False) -> str:
    """Train by several processes; return what ended the first one of them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    own |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    error = folder.with_suffix(".error")
    children: list[int] = []
    for rank in range(processes):
        child = os.fork()
        if child:
            children.append(child)
            continue
        if engine != "plain":
            own["ACCELERATE_MIXED_PRECISION"] = "bf16"  # the recipe knows better
        os.environ |= ENVIRONMENTS[engine] | own | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        try:
            message = work(text, engine, folder, resume=resume)
            if rank == 0:
                error.write_text(message, "utf-8")
        finally:
            traceback.print_exc()  # which _exit would swallow
            os._exit(0)
    for child in children:
        os.waitpid(child, 0)
    return error.read_text("utf-8") if error.is_file() else "see the log"


def cut(whole: Path, copy: Path) -> None:
    """Copy a run as it would be if it had been killed in its last iteration."""
    shutil.copytree(whole, copy)
    for part in ("conductor", "checkpoints/checkpoint-2"):
        shutil.rmtree(copy / part)
    (copy / "results.json").unlink()


def go_on_in_parts(root: Path) -> str:
    """Resume a run of FSDP2 with another type of state dict; return what ended it."""
    cut(root / "FSDP2", root / "FSDP2 in parts")
    ENVIRONMENTS["FSDP2"]["FSDP_STATE_DICT_TYPE"] = "SHARDED_STATE_DICT"
    return train(WHOLE, "FSDP2", root / "FSDP2 in parts", resume=True)


def main(root: Path) -> None:
    torch.set_num_threads(1)
    engines = ["plain", "FSDP2"]
    if find_spec("deepspeed") is not None:
        import_module("deepspeed.comm.torch")
        engines += ["ZeRO-2", "ZeRO-3"]
    errors: dict[str, str] = {}
    for engine in engines:
        errors[engine] = train(WHOLE, engine, root / engine)
        resumed = f"{engine} resumed"
        cut(root / engine, root / resumed)
        errors[resumed] = train(WHOLE, engine, root / resumed, resume=True)
        adapters = f"{engine} adapters"
        errors[adapters] = train(ADAPTERS, engine, root / adapters)
    changes = [("plain", "FSDP2", 2), ("FSDP2", "plain", 2), ("FSDP2", "FSDP2", 4)]
    if "ZeRO-2" in engines:
        changes += [("ZeRO-2", "ZeRO-2", 4), ("ZeRO-2", "ZeRO-3", 2)]
    for before, after, processes in changes:
        name = f"{before} to {after} by {processes}"
        cut(root / before, root / name)
        errors[name] = train(WHOLE, after, root / name, processes=processes, resume=True)
    errors["FSDP2 in parts"] = go_on_in_parts(root)
    (root / "errors.json").write_text(json.dumps(errors, indent=2), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
