"""What several of the integration tests need."""

from __future__ import annotations

import pytest

from openconductor.errors import SandboxError
from openconductor.sandboxes import Limits, Run, Sandbox, open_sandbox
from openconductor.sandboxes.bubblewrap import BubblewrapSandbox


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
