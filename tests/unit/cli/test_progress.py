"""The bar of a long command: what it shows before and after anything is known."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from openconductor.cli import console
from openconductor.cli.progress import progress_bar


def test_no_count_is_shown_before_one_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    screen = Console(file=file, force_terminal=True, force_interactive=True, width=80, color_system=None)
    monkeypatch.setattr(console, "messages", lambda: screen)
    with progress_bar("asking"):
        pass
    assert "asking" in file.getvalue() and not re.search(r"/\d", file.getvalue())
    with progress_bar("asking") as advance:
        advance(7, 12, "$0.01")
    assert "7/12" in file.getvalue() and "$0.01" in file.getvalue()
