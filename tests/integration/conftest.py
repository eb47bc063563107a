"""What several of the integration tests need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from integration.browsing import CHROMIUM
from openconductor.errors import SandboxError
from openconductor.sandboxes import Limits, Run, Sandbox, open_sandbox
from openconductor.sandboxes.bubblewrap import BubblewrapSandbox

if TYPE_CHECKING:
    from integration.orchestra import Orchestra


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    """The best sandbox of this machine; skips where there is none."""
    try:
        return open_sandbox()
    except SandboxError as error:
        pytest.skip(f"needs a sandbox: {error}")


@pytest.fixture(scope="session")
def bubblewrap() -> BubblewrapSandbox:
    """bubblewrap; skips where it does not work."""
    try:
        made = BubblewrapSandbox()
        made.run_now("print(1)", [Run()], limits=Limits())
    except SandboxError as error:
        pytest.skip(f"needs bubblewrap: {error}")
    return made


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium for the tests of a module; skips where it or Playwright is absent.

    As long as it is there, an event loop runs in this thread, so no other module may have it.
    """
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright (extra 'dev')")
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def served_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orchestra]:
    """A server for all tests of a module."""
    from integration.orchestra import orchestra  # it needs the extra 'serve', as few tests do

    with orchestra(tmp_path_factory.mktemp("served")) as made:
        yield made


@pytest.fixture
def server(served_module: Orchestra) -> Orchestra:
    """The module's server, with the usual plays and nothing sent."""
    served_module.play()
    return served_module
