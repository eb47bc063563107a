"""``openconductor view``: look at the episodes of a store in a browser, offline.

The page is served on loopback to whoever has the link that is printed here. The store is only read,
so a server or an evaluation may write to it meanwhile.
"""

from __future__ import annotations

import atexit
import html
import tempfile
import webbrowser
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from openconductor.cli import console
from openconductor.config import needing
from openconductor.errors import ConfigError
from openconductor.evaluation.records import CONFIG, JOURNAL, journal_place
from openconductor.report.runs.run_folders import read_run
from openconductor.serving.listening import ListeningSocket, listen
from openconductor.store import place_name, read_store
from openconductor.ui.door import LOOPBACK, PREFIX, Door

HOST = "127.0.0.1"
PORT = 8321
"""The port, unless it is in use."""


def view(
    journal: Annotated[
        str | None,
        typer.Argument(
            help="A journal, or the folder of a run (default: the latest one here).",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=1, max=65535, help=f"The port (default: {PORT})."),
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open the browser.")] = False,
) -> None:
    """Look at episodes in a browser: workflow, steps, times, costs.

    The store is only read, and nothing leaves this machine.
    """
    with needing("view", "ui"):
        import uvicorn
        from starlette.applications import Starlette
        from starlette.responses import RedirectResponse
        from starlette.routing import Mount

        from openconductor.ui.site import Site
    place = journal_of(journal)
    root, page = runs_of(journal)
    with read_store(place) as store:
        (listener, *_) = _listen(port)
        used = listener.getsockname()[1]
        address = f"http://{HOST}:{used}{PREFIX}{page}"
        door = open_door(used, address, key=None)
        if open_it:
            open_browser(f"{address}#token={door.new_token(None)}")
        name = place_name(place)
        console.say(f"{name} is only read; Ctrl-C ends this")
        server: uvicorn.Server
        to_page = RedirectResponse(f"{PREFIX}/episodes")
        site = Site(store, door, name=name, stopping=lambda: server.should_exit, root=root)
        app = Starlette(routes=[Mount(PREFIX, app=site), Mount("/", app=to_page)])
        settings = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=2,
        )
        server = uvicorn.Server(settings)
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listener])


def open_door(
    port: int,
    address: str,
    *,
    key: str | None,
    hosts: frozenset[str] | None = LOOPBACK,
    origins: Collection[str] = (),
) -> Door:
    """Return a door for whoever sees the terminal, and print the link; each one opens it once.

    Args:
        port: where the server listens.
        address: of the page.
        key: whose episodes are shown; None: all.
        hosts: the names that a Host header may have.
        origins: further addresses of the page, through a proxy.
    """

    def say_link() -> None:
        console.say(f"look at {address}#token={door.new_token(key)}")

    def say_next() -> None:
        console.say("that link was used; for another browser:")
        say_link()

    door = Door(port, hosts=hosts, origins=origins, on_entered=say_next)
    say_link()
    return door


def open_browser(link: str) -> None:
    """Open a link in the browser by a file that leads to it.

    Everybody on this machine sees a browser's command line, but only the user may read the file. It
    is removed when this process ends, unless it is killed; then the token in it is worth nothing.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".html", delete=False) as file:
        file.write(f'<meta http-equiv="refresh" content="0; url={html.escape(link)}">')
    path = Path(file.name)
    atexit.register(path.unlink, missing_ok=True)
    webbrowser.open(path.as_uri())


def journal_of(journal: str | None) -> str | Path:
    """Return the journal that is meant: a file, that of a run's folder, or the latest one here.

    Raises:
        ConfigError: there is none.
    """
    if journal is None:
        found = [*Path().glob("*.sqlite"), *Path("runs").glob(f"*/{JOURNAL}")]
        if not found:
            raise ConfigError(
                "no journal here: name one, or make one with "
                "`openconductor ask QUESTION --journal asked.sqlite`"
            )
        return max(found, key=lambda path: path.stat().st_mtime)
    if "://" in journal:
        return journal
    path = Path(journal)
    if not path.is_dir():
        return path
    place = journal_place(path)
    if isinstance(place, str) or place.exists():
        return place
    journals = list(path.glob(f"*/{JOURNAL}"))  # of a folder of runs
    if not journals:
        raise ConfigError(
            f"{path}: the folder has no {JOURNAL}; expected that of a run, or of runs"
        )
    return max(journals, key=lambda path: path.stat().st_mtime)


def runs_of(journal: str | None) -> tuple[Path, str]:
    """Return the folder of the runs that are shown, and the page that is shown first.

    Beside the run of a folder stand the others of its folder, so that they can be compared.
    """
    if journal is not None and Path(journal).is_dir():
        folder = Path(journal).resolve()
        run = read_run(folder / CONFIG, folder.parent)
        if run is not None:
            return folder.parent, run.address
        return folder, "/runs"
    return Path("runs"), "/episodes"


def _listen(port: int | None) -> list[ListeningSocket]:
    """Listen at a port; at any free one if none was given and the usual one is in use."""
    try:
        return listen(HOST, PORT if port is None else port)
    except OSError as error:
        if port is None:
            return listen(HOST, 0)
        console.fail(f"cannot listen at port {port}: {error.strerror}", hint="Leave --port out.")
