"""What several of the integration tests need."""

from __future__ import annotations

import pytest

from openconductor.errors import SandboxError
from openconductor.sandboxes import Sandbox, open_sandbox


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    """The best sandbox of this machine; skips where there is none."""
    try:
        return open_sandbox()
    except SandboxError as error:
        pytest.skip(f"needs a sandbox: {error}")
