"""Processes on a Ray cluster that join an evaluation, with the CPUs and GPUs that each declares.

Ray only starts them, and starts them again elsewhere if a node fails. What is asked by whom, and
all answers, are in the evaluation's database.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

from openconductor.config import needing
from openconductor.errors import ConfigError, OpenConductorError
from openconductor.evaluation.eval_config import RayTable

_RESTARTS = 100  # of one actor, before it counts as broken
_WAIT_S = 10.0  # for a cluster


class _Joiner:
    """An actor that joins; Ray makes it in a process of its own."""

    def join(self, join: Callable[[], None], folder: str) -> None:
        """Join in the folder in which the command was given, if this machine has it."""
        if Path(folder).is_dir():
            os.chdir(folder)
        join()


def join_on_ray(
    address: str, table: RayTable, join: Callable[[], None], *, say: Callable[[str], None]
) -> None:
    """Call a function in actors of a Ray cluster, and wait until it has returned in all of them.

    Args:
        address: of the cluster, as ``ray.init`` takes it (``auto``, ``HOST:PORT``, ``local``).
        table: how many actors, and what each needs.
        join: the function; it is called again where an actor was killed.
        say: gets a line for people. What the actors print comes to stderr.

    Raises:
        ConfigError: Ray is not installed, there is no such cluster, or an actor has no room in it.
        OpenConductorError: the function raised it, or an actor was killed too often.
    """
    with needing("eval --ray", "ray"):
        ray: Any = import_module("ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        _reach(address)
        ray.init(address=address, logging_level="warning")
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise ConfigError(f"eval --ray {address}: {error}") from error
    with ExitStack() as stack:
        stack.callback(ray.shutdown)
        _check_room(ray.cluster_resources(), table)
        nodes = [node for node in ray.nodes() if node["Alive"]]
        count = table.joiners or len(nodes)
        say(f"starting processes on the Ray cluster {address}: {count}; nodes: {len(nodes)}")
        actor = ray.remote(_Joiner).options(
            num_cpus=table.cpus,
            num_gpus=table.gpus,
            max_restarts=_RESTARTS,
            max_task_retries=_RESTARTS,
        )
        actors = [actor.remote() for _ in range(count)]
        waiting = [one.join.remote(join, str(Path.cwd())) for one in actors]
        while waiting:
            ended, waiting = ray.wait(waiting)
            _read_end(ray, ended[0])


def _reach(address: str) -> None:
    """Connect to HOST:PORT, because Ray tries that for many minutes."""
    host, _, port = address.rpartition(":")
    if port.isdecimal() and "/" not in host:
        socket.create_connection((host, int(port)), _WAIT_S).close()


def _check_room(resources: Mapping[str, float], table: RayTable) -> None:
    wanted = {"CPU": table.cpus, "GPU": table.gpus}
    for name, amount in wanted.items():
        there = resources.get(name, 0)
        if amount > there:
            raise ConfigError(
                f"ray.{name.lower()}s: got {amount:g}, expected at most {there:g}: the cluster has "
                "no more"
            )


def _read_end(ray: Any, future: object) -> None:
    """Raise what the function of an actor raised."""
    try:
        ray.get(future)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, OpenConductorError):
            raise error.cause from None
        raise
    except ray.exceptions.RayActorError as error:
        raise OpenConductorError(f"eval --ray: a joined process ended: {error}") from error
