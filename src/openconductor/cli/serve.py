"""``openconductor serve``: a Conductor, baselines and single workers behind the OpenAI and Anthropic APIs.

In: a config and ``key=value`` overrides, or options. Out: a server until it is told to stop; where
it listens and how it is asked, on stderr. With ``--new-key`` a key and its table on stdout, and no
server.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import openconductor as oc
from openconductor.calls.options import guess_tokens
from openconductor.cli import console
from openconductor.cli.options import PlannerName, PoolFile
from openconductor.config import dump_toml, load_toml, needing
from openconductor.evaluation.eval_config import GYM, EvalConfig, find_planner, read_spec
from openconductor.evaluation.systems import Workshop
from openconductor.gym.workers import gym_pool
from openconductor.serving import key_ring
from openconductor.serving.serve_config import ServeConfig, check_serve_config, model_names
from openconductor.store import open_store

SIMULATED = "Take 4 17 9, sort the list, then double every number."
QUESTION = "How many primes are there below 1000?"


def serve(
    overrides: Annotated[
        list[str] | None, typer.Argument(help="With --config: key=value.", show_default=False)
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="A config (TOML).")] = None,
    pool: PoolFile = None,
    conductor: PlannerName = None,
    host: Annotated[
        str | None, typer.Option("--host", help="Where it listens (default: 127.0.0.1).")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=1, max=65535, help="The port (default: 8080).")
    ] = None,
    journal: Annotated[
        Path | None, typer.Option("--journal", help="Keeps all calls (default: serve.sqlite).")
    ] = None,
    new_key: Annotated[
        str | None, typer.Option("--new-key", help="Print a key for NAME, and do not serve.")
    ] = None,
) -> None:
    """Serve a Conductor behind the OpenAI and Anthropic APIs."""
    given = {"conductor": conductor, "host": host, "port": port}
    given |= {
        name: None if path is None else str(path)
        for name, path in (("pool", pool), ("journal", journal))
    }
    said = {name: value for name, value in given.items() if value is not None}
    if new_key is not None:
        if said or config or overrides:
            raise oc.ConfigError(
                "--new-key: prints a key and serves nothing; expected nothing beside it"
            )
        _show_new_key(new_key)
        return
    if overrides and config is None:
        raise oc.ConfigError(
            f"{overrides[0]!r}: got key=value without a config; expected --config beside it"
        )
    told = ServeConfig() if config is None else load_toml(config, ServeConfig, overrides or ())
    _serve(replace(told, **said), "command line" if config is None else str(config))


def _show_new_key(name: str) -> None:
    if not name.strip():
        raise oc.ConfigError("--new-key: got a blank name, expected who will hold the key")
    key, hashed = key_ring.new_key()
    console.say(
        f"The key of {name}, shown this once, and the table for the config, which holds only its hash:"
    )
    console.show_text(f"{key}\n\n{dump_toml({'key': [{'name': name, 'hash': hashed}]}).rstrip()}")


def _serve(config: ServeConfig, where: str) -> None:
    """Make all that is served, check it, and serve it until it is told to stop."""
    with needing("serve", "serve"):
        from openconductor.serving.app import run
        from openconductor.serving.gateway import Gateway
    simulated = config.pool == GYM
    pool = gym_pool(0) if simulated else oc.WorkerPool.from_toml(config.pool)
    planner = find_planner(config.conductor or None, pool, simulated=simulated)
    steps, rounds = config.max_steps, config.max_rounds
    conductor = oc.Conductor(
        planner, pool=pool, max_steps=steps, max_rounds=rounds, fallback=config.fallback
    )
    check_serve_config(config, pool, conductor.planner, where=where)
    made = map(Workshop(EvalConfig(), pool).make, map(read_spec, config.baselines))
    baselines = {system.name: system.orchestrator for system in made}
    with open_store(config.journal, content=config.content) as journal:
        gateway = Gateway(conductor, journal, baselines=baselines, reasoning=config.reasoning)
        _say_where(config, pool, model_names(config, pool))
        run(config, gateway, key_ring.KeyRing(config.key, journal))


def _say_where(config: ServeConfig, pool: oc.WorkerPool, models: tuple[str, ...]) -> None:
    host = f"[{config.host}]" if ":" in config.host else config.host
    question = SIMULATED if config.pool == GYM else QUESTION
    body = f'{{"model": "{models[0]}", "messages": [{{"role": "user", "content": "{question}"}}]}}'
    header = ' -H "authorization: Bearer $KEY"' if config.key else ""
    console.say(
        f"serving at http://{host}:{config.port}/v1, until Ctrl-C; models: {', '.join(models)}"
    )
    console.say(f"  curl http://{host}:{config.port}/v1/chat/completions{header} -d '{body}'")
    endless = [
        worker.name
        for _, worker in pool
        if worker.price and not guess_tokens((), worker.sampling)[1]
    ]
    if endless and config.pool != GYM and any(key.dollars is not None for key in config.key):
        console.say(
            f"no limit of tokens: {', '.join(endless)}; where a client breaks off a call of theirs, only what it read "
            "is charged: expected sampling = {max_tokens = ...} in the pool file"
        )
