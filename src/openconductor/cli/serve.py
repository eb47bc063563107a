"""``openconductor serve``: serve a Conductor, baselines and single workers behind HTTP APIs.

With ``--new-key`` it prints a new key and its table, and does not serve.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NamedTuple, NoReturn
from urllib.parse import urlsplit

import typer

import openconductor as oc
from openconductor.calls.options import guess_tokens
from openconductor.checklist import Checklist
from openconductor.cli import console
from openconductor.cli.options import (
    DryRunOption,
    Offline,
    PlannerName,
    PlanOptions,
    PoolFile,
    Run,
    Traced,
    check_measured,
    make_conductor,
    pool_file_hint,
    spread,
)
from openconductor.cli.runs import require_evaluation
from openconductor.cli.view import open_browser, open_door
from openconductor.config import dump_toml, load_toml, needing
from openconductor.evaluation.dry_run import check_keys, check_pool
from openconductor.evaluation.eval_config import CONDUCTOR, GYM, find_planner
from openconductor.gym.questions import EXAMPLE, UNREADABLE, is_readable
from openconductor.pool import open_pool
from openconductor.prompt import check_question
from openconductor.protocols import Orchestrator
from openconductor.serving import key_ring
from openconductor.serving.listening import ListeningSocket, listen
from openconductor.serving.measured import AUTO, MeasuredRun, for_users, planner_of
from openconductor.serving.serve_config import (
    LogLevel,
    ServeConfig,
    check_processes,
    check_serve_config,
    direct_names,
    is_loopback,
    make_baseline,
    serve_checks,
)
from openconductor.serving.shared.key_book import KeyBook, let_in
from openconductor.serving.shared.replicas import ReplicaPlace, Supervisor, own_place
from openconductor.store import (
    AccountStore,
    RecordStore,
    check_store,
    database_url,
    open_store,
    place_name,
)
from openconductor.traces import TracesTable, open_traces
from openconductor.ui.door import LOOPBACK, PREFIX, Door

_OF_CONDUCTOR = (
    "conductor",
    "force",
    "max_steps",
    "max_rounds",
    "cards",
    "examples",
    "template",
)
"""The fields of a config that the recipe of a run decides."""
QUESTION = "How many primes are there below 1000?"


@spread
def serve(  # noqa: PLR0913 - the options of a command
    overrides: Annotated[
        list[str] | None, typer.Argument(help="With --config: key=value.", show_default=False)
    ] = None,
    *,
    config: Annotated[Path | None, typer.Option("--config", help="A config (TOML).")] = None,
    run: Run = None,
    pool: PoolFile = None,
    conductor: PlannerName = None,
    plan: PlanOptions,
    host: Annotated[
        str | None, typer.Option("--host", help="The address to listen at (default: 127.0.0.1).")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=1, max=65535, help="The port (default: 8080).")
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option("--processes", min=1, help="Servers at this address (with PostgreSQL)."),
    ] = None,
    journal: Annotated[
        str | None,
        typer.Option(
            "--journal",
            metavar="FILE|URL",
            help="A file, or a PostgreSQL database, that keeps all calls (default: serve.sqlite).",
        ),
    ] = None,
    ui: Annotated[
        bool, typer.Option("--ui", help="Show the episodes in a browser, at /ui.")
    ] = False,
    allow_asking: Annotated[
        bool,
        typer.Option("--allow-asking", help="With --ui: who looks may also ask, on this machine."),
    ] = False,
    log_level: Annotated[
        LogLevel | None,
        typer.Option("--log-level", help="The log on stderr (default: info, a line a request)."),
    ] = None,
    traces: Traced = False,
    new_key: Annotated[
        str | None, typer.Option("--new-key", help="Print a key for NAME, and do not serve.")
    ] = None,
    dry_run: DryRunOption = False,
    offline: Offline = False,
) -> None:
    """Serve a Conductor behind the OpenAI and Anthropic APIs.

    With ``--from``, serve what an evaluation measured.
    """
    options = {
        "conductor": conductor,
        **asdict(plan),
        "force": plan.force or None,
        "host": host,
        "port": port,
        "processes": processes,
        "log_level": log_level,
        "ui": ui or None,
        "allow_asking": allow_asking or None,
        "run": None if run is None else str(run),
        "pool": None if pool is None else str(pool),
        "journal": journal,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if new_key is not None:
        if given or config or overrides or dry_run or offline or traces:
            raise oc.ConfigError("--new-key allows no other option")
        _show_new_key(new_key)
        return
    if config is None:
        if overrides:
            raise oc.ConfigError(f"{overrides[0]!r}: key=value requires --config")
        loaded, where = ServeConfig(), "command line"
    else:
        loaded, where = load_toml(config, ServeConfig, overrides or ()), str(config)
    if traces and loaded.traces is None:
        given["traces"] = TracesTable()
    if dry_run:
        _dry_run(replace(loaded, **given), where, offline=offline)
        return
    if offline:
        raise oc.ConfigError("--offline requires --dry-run")
    config_given = replace(loaded, **given)
    place = own_place()
    if config_given.processes is not None and place is None:
        _serve_by_several(config_given, config_given.processes, where)
    _serve(config_given, where, place=place)


def _show_new_key(name: str) -> None:
    if not name.strip():
        raise oc.ConfigError("--new-key: the name is blank, expected the name of the key's holder")
    key, hashed = key_ring.new_key()
    console.say(
        f"The key of {name}, which is shown only once, and its table for the config, which holds "
        "only the key's hash:"
    )
    console.show_text(f"{key}\n\n{dump_toml({'key': [{'name': name, 'hash': hashed}]}).rstrip()}")


class _Offer(NamedTuple):
    """What a server offers.

    Attributes:
        source: the pool file, or the name of simulated workers.
        pool: the workers.
        systems: answer as models, by name.
        evidence: what a run measured of them, by the names of the models.
    """

    source: str
    pool: oc.WorkerPool
    systems: dict[str, Orchestrator]
    evidence: dict[str, dict[str, object]]


def serve_demo(journal: str) -> None:
    """Serve the simulated workers beside a journal, and open its page, until Ctrl-C."""
    config = ServeConfig(port=0, journal=journal, ui=True, allow_asking=True, log_level="warning")
    _serve(config, "demo --view", is_demo=True)


def _serve_by_several(config: ServeConfig, processes: int, where: str) -> NoReturn:
    """Keep ``processes`` servers running, a process each, until this one is stopped."""
    check_processes(config, where)
    shared = _listen(config)
    port = shared[0].getsockname()[1]
    own = [_listen(replace(config, port=port + number + 1)) for number in range(processes)]
    # A terminal that hangs up stops its server, whatever else SIGHUP means.
    supervisor = Supervisor(shared, own, say=console.say, reloads=not sys.stderr.isatty())
    console.say(
        f"{processes} processes serve; each is also at a port of its own, with its /metrics: "
        f"{port + 1} to {port + processes}"
    )
    raise typer.Exit(supervisor.run())


def _serve(
    config: ServeConfig, where: str, *, is_demo: bool = False, place: ReplicaPlace | None = None
) -> None:
    """Make and check everything that is served, and serve it until the process is stopped.

    The page of a demo shows everything in the journal, and is opened. ``place`` is that of a
    process that serves beside others.
    """
    with needing("serve", "serve"):
        from openconductor.serving.app import run
        from openconductor.serving.gateway import Gateway
    offer = _make_offer(config, where)
    config = replace(config, pool=offer.source)
    pool = offer.pool
    systems = offer.systems
    for text in config.baselines:
        baseline = make_baseline(text, config, pool, where)
        systems[baseline.name] = baseline.orchestrator
    check_serve_config(config, pool, systems, where=where)
    simulated = config.pool == GYM
    listeners = _listen(config) if place is None else place.sockets
    keep_days = config.keep_days
    with (
        open_traces(config.traces) as traces,
        open_store(config.journal, content=config.content, keep_days=keep_days) as journal,
    ):
        if keep_days is not None and not isinstance(journal, AccountStore):
            key_ring.charge_killed(journal)
        gateway = Gateway(
            pool,
            journal,
            systems,
            evidence=offer.evidence,
            reasoning=config.reasoning,
            traces=traces,
            check=check_readable if simulated else check_question,
            example=EXAMPLE if simulated else "",
        )
        config = replace(config, port=listeners[0].getsockname()[1])
        ring = key_ring.KeyRing(config.key, journal)
        if isinstance(journal, RecordStore):
            names = [key.name for key in config.key]
            let_in(ring, KeyBook(journal).announce(names))
        door = _make_door(config, ring, is_demo=is_demo) if config.ui else None
        if place is not None:
            place.end_with_parent()
            place.say_ready()
        if place is None or place.speaks:
            _introduce(config, pool, [*systems, *direct_names(pool).values()], ring)
        run(config, gateway, ring, listeners, door)


def _introduce(
    config: ServeConfig, pool: oc.WorkerPool, models: Sequence[str], ring: key_ring.KeyRing
) -> None:
    """Print what is served, and what the operator may want to change."""
    _say_address(config, models, needs_key=not ring.is_open)
    simulated = config.pool == GYM
    hint = pool_file_hint()
    if simulated and hint and not config.run:
        console.say(hint)
    has_budget = any(key.dollars is not None for key in config.key)
    if has_budget and not simulated:
        _warn_of_unlimited(pool)


def _make_door(config: ServeConfig, ring: key_ring.KeyRing, *, is_demo: bool) -> Door:
    """Return the door of the page, and say where the page is.

    Without keys everybody on this machine may ask, so whoever sees the terminal may look.
    """
    address = f"{_address(config)}{PREFIX}/episodes"
    port, origins = config.port, config.origins
    hosts = None
    if is_loopback(config.host):
        names = (urlsplit(origin).hostname for origin in origins)
        hosts = LOOPBACK.union(name for name in names if name)
    if not ring.is_open:
        console.say(f"the page is at {address}; each key sees its own episodes")
        return Door(
            port, hosts=hosts, origins=origins, find_key=lambda headers: ring.find(headers).name
        )
    if not is_demo:
        return open_door(port, address, key="", hosts=hosts, origins=origins)
    door = open_door(port, address, key=None, hosts=hosts)
    open_browser(f"{address}#token={door.new_token(None)}")
    return door


def _dry_run(config: ServeConfig, where: str, *, offline: bool) -> None:
    """Check everything that a server needs, and print a line for each check."""
    checklist = Checklist()
    needed = {"serve": "starlette"}
    if config.ui:
        needed["ui"] = "jinja2"
    for extra, module in needed.items():
        if find_spec(module) is None:
            install = f"pip install 'openconductor[{extra}]'"
            checklist.wrong("packages", f"the extra {extra} is not installed: {install}")
    checklist.attempt("traces", partial(_check_traces, config))
    what = "run" if config.run else "conductor"
    offer = checklist.attempt(what, lambda: _make_offer(config, where))
    if offer is not None:
        checklist.ready(what, config.run or config.conductor or "the bundled one")
        _check_offer(config, offer, where, checklist)
    _check_journal(config.journal, checklist)
    _check_port(config, checklist)
    console.show_checks(checklist.checks)
    console.finish_checks(checklist, offline=offline)


def _check_traces(config: ServeConfig) -> None:
    with open_traces(config.traces):
        pass


def _check_offer(config: ServeConfig, offer: _Offer, where: str, checklist: Checklist) -> None:
    """Check the pool, the models and the keys of a server."""
    config = replace(config, pool=offer.source)
    pool, systems = offer.pool, offer.systems
    check_pool(config.pool, pool, checklist)
    planners = [planner for planner in map(planner_of, systems.values()) if planner is not None]
    check_keys(config.pool, pool, checklist, [planner.resolved for planner in planners])
    for text in config.baselines:
        make = partial(make_baseline, text, config, pool, where)
        baseline = checklist.attempt(f"model {text}", make)
        if baseline is not None:
            systems[baseline.name] = baseline.orchestrator
    for name, check in serve_checks(config, pool, systems, where=where):
        checklist.attempt(name, check)
    if checklist.is_right:
        checklist.ready("models", ", ".join((*systems, *direct_names(pool).values())))
        names = ", ".join(key.name for key in config.key)
        checklist.ready("clients", names or "anybody on this machine")


def _check_journal(place: str, checklist: Checklist) -> None:
    """Check that a journal can be read, or that a new one has a place."""
    try:
        check_store(place)
    except oc.OpenConductorError as error:
        checklist.wrong("journal", str(error))
    else:
        checklist.ready("journal", place if database_url(place) is None else place_name(place))


def _check_port(config: ServeConfig, checklist: Checklist) -> None:
    """Check that the address is free."""
    address = f"port {config.port} of {config.host}"
    try:
        listeners = listen(config.host, config.port)
    except OSError as error:
        checklist.absent("port", f"{address}: {error.strerror}; --port chooses another one")
        return
    for listener in listeners:
        listener.close()
    checklist.ready("port", f"{address} is free")


def _make_offer(config: ServeConfig, where: str) -> _Offer:
    """Make what a config offers: the systems of a run, or a Conductor."""
    if config.run:
        return _offer_run(config, where)
    pool = open_pool(config.pool)
    planner = find_planner(config.conductor or None, pool, simulated=config.pool == GYM)
    conductor = make_conductor(planner, pool, config, config.plan_timeout_s)
    return _Offer(config.pool, conductor.pool, {CONDUCTOR: conductor}, {})


def _offer_run(config: ServeConfig, where: str) -> _Offer:
    """Offer the systems of a run; one that cannot be made is named on stderr."""
    default = ServeConfig()
    changed = {name: getattr(config, name) != getattr(default, name) for name in _OF_CONDUCTOR}
    check_measured(changed, where)
    require_evaluation(Path(config.run))
    measured = MeasuredRun(Path(config.run), None if config.pool == GYM else config.pool)
    systems: dict[str, Orchestrator] = {}
    evidence: dict[str, dict[str, object]] = {}
    for name in measured.names:
        try:
            system = measured.make(name)
        except oc.ConfigError as error:
            if name == AUTO:
                raise
            console.say(f"not offered: {error}")
            continue
        systems[name] = for_users(
            system,
            fallback=config.fallback,
            on_no_plan=config.on_no_plan,
            direct_below_tokens=config.direct_below_tokens,
            plan_timeout_s=config.plan_timeout_s,
        )
        evidence[name] = measured.evidence(name)
    console.say(measured.say_auto())
    return _Offer(measured.config.pool, measured.pool, systems, evidence)


def check_readable(question: Sequence[oc.Message]) -> tuple[oc.Message, ...]:
    """Return the turns of a question that the gym's workers can read.

    Raises:
        ConfigError: it cannot be asked, or they cannot read it.
    """
    turns = check_question(question)
    first = next((turn.content for turn in turns if turn.role == "user"), "")
    if not is_readable(first):
        raise oc.ConfigError(
            f"{UNREADABLE} To serve any other question, start the server with a pool and a "
            "Conductor: --pool pool.toml --conductor openai:MODEL"
        )
    return turns


def _listen(config: ServeConfig) -> list[ListeningSocket]:
    try:
        return listen(config.host, config.port)
    except OSError as error:
        message = f"cannot listen at port {config.port} of {config.host}: {error.strerror}"
        if error.errno == errno.EADDRINUSE:
            message = f"port {config.port} of {config.host} is in use"
        console.fail(message, hint="--port chooses another port, --host another address.")


def _say_address(config: ServeConfig, models: Sequence[str], *, needs_key: bool) -> None:
    """Print the address, an example of a request, and where the calls are kept."""
    url = f"{_address(config)}/v1"
    question = EXAMPLE if config.pool == GYM else QUESTION
    body = f'{{"model": "{models[0]}", "messages": [{{"role": "user", "content": "{question}"}}]}}'
    header = ' -H "authorization: Bearer $KEY"' if needs_key else ""
    console.say(f"serving at {url}, until Ctrl-C; models: {', '.join(models)}")
    kept = "every call" if config.content == "full" else "every call, without its texts,"
    console.say(f"{kept} is kept in {place_name(config.journal)}")
    console.say(f"  curl {url}/chat/completions{header} -d '{body}'")


def _address(config: ServeConfig) -> str:
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"http://{host}:{config.port}"


def _warn_of_unlimited(pool: oc.WorkerPool) -> None:
    """Name the workers whose cancelled calls cannot be charged in full."""
    unlimited: list[str] = []
    for _, worker in pool:
        limit = guess_tokens((), worker.sampling)[1]
        if worker.price and not limit:
            unlimited.append(worker.name)
    if unlimited:
        console.say(
            f"no limit of tokens: {', '.join(unlimited)}. If a client cancels a call of theirs, "
            "only the text that it has read is charged; set sampling = {max_tokens = ...} in the "
            "pool file"
        )
