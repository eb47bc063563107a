"""Processes on a Ray cluster that join an evaluation or a study, with CPUs and GPUs for each.

Ray only starts them, and starts them again elsewhere if a node fails. What is done by whom, and all
results, are in the database.
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

    def join(self, join: Callable[[], object], folder: str) -> None:
        """Join in the folder in which the command was given, if this machine has it."""
        if Path(folder).is_dir():
            os.chdir(folder)
        join()


def join_on_ray(
    address: str,
    table: RayTable,
    join: Callable[[], object],
    *,
    command: str,
    cpus_option: str = "ray.cpus",
    say: Callable[[str], None],
) -> None:
    """Call a function in actors of a Ray cluster, and wait until it has returned in all of them.

    Args:
        address: of the cluster, as ``ray.init`` takes it (``auto``, ``HOST:PORT``, ``local``).
        table: how many actors, and what each needs.
        join: the function; it is called again where an actor was killed.
        command: the command that the user gave, with ``--ray``, as errors name it.
        cpus_option: the option that says how many CPUs an actor needs, as errors name it.
        say: gets a line for people. What the actors print comes to stderr.

    Raises:
        ConfigError: Ray is not installed, there is no such cluster, or an actor has no room in it.
        OpenConductorError: the function raised it, or an actor was killed too often.
    """
    with needing(command, "ray"):
        ray: Any = import_module("ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        _reach(address)
        ray.init(address=address, logging_level="warning")
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise ConfigError(f"{command} {address}: {error}") from error
    with ExitStack() as stack:
        stack.callback(ray.shutdown)
        _check_room(ray.cluster_resources(), table, cpus_option)
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
            _read_end(ray, ended[0], command)


def _reach(address: str) -> None:
    """Connect to HOST:PORT, because Ray tries that for many minutes."""
    host, _, port = address.rpartition(":")
    if port.isdecimal() and "/" not in host:
        socket.create_connection((host, int(port)), _WAIT_S).close()


def _check_room(resources: Mapping[str, float], table: RayTable, cpus_option: str) -> None:
    wanted = {"CPU": (cpus_option, table.cpus), "GPU": ("ray.gpus", table.gpus)}
    for resource, (option, amount) in wanted.items():
        there = resources.get(resource, 0)
        if amount > there:
            raise ConfigError(
                f"{option}: got {amount:g}, expected at most {there:g}: the cluster has no more"
            )


def _read_end(ray: Any, future: object, command: str) -> None:
    """Raise what the function of an actor raised."""
    try:
        ray.get(future)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, OpenConductorError):
            raise error.cause from None
        raise
    except ray.exceptions.RayActorError as error:
        raise OpenConductorError(f"{command}: a joined process ended: {error}") from error
