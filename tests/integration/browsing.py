"""Debian's Chromium without a screen, driven by Playwright, and servers of the page for it.

``visited`` gives a browser that has entered, over a server that runs as a process of its own.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)


@contextmanager
def running(
    *words: object, folder: Path | None = None
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run a command that serves the page, in a folder; give its link and the process."""
    command = [sys.executable, "-m", "openconductor", *map(str, words)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                found = re.search(r"http://\S+#token=\S+", line)
                if found:
                    yield found.group(), process
                    break
        finally:
            process.terminate()


@contextmanager
def viewed(journal: Path) -> Iterator[str]:
    """Run ``openconductor view`` over a journal; give its link."""
    with running("view", journal) as (link, _):
        yield link


def asking_config(folder: Path, *more: str) -> Path:
    """Write the config of a server where visitors may ask."""
    lines = ["port = 0", "ui = true", "allow_asking = true", 'log_level = "error"', *more]
    lines.append(f'journal = "{folder / "serve.sqlite"}"')
    config = folder / "serve.toml"
    config.write_text("\n".join(lines), "utf-8")
    return config


@contextmanager
def asking(folder: Path) -> Iterator[str]:
    """Run ``openconductor serve`` over simulated workers, where visitors may ask; give its link."""
    with running("serve", "--config", asking_config(folder)) as (link, _):
        yield link


class Visit:
    """A browser that has entered, what it asked for, and what its console said."""

    def __init__(self, browser: Any, link: str) -> None:
        self.requested: list[str] = []
        self.said: list[str] = []
        self.origin = link.partition("/ui")[0]
        self.context = browser.new_context(viewport={"width": 1280, "height": 900})
        self.page = self.open()
        self.page.goto(link)
        self.page.wait_for_selector("h1:has-text('Episodes')")
        self.said.clear()  # a stranger is answered with 401 before the link is used

    def open(self) -> Any:
        page = self.context.new_page()
        page.on("request", lambda request: self.requested.append(request.url))
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        return page

    def _hear(self, message: Any) -> None:
        """Note what the console says, and of which address."""
        self.said.append(f"{message.text} {message.location['url']}")

    def goto(self, path: str) -> Any:
        self.page.goto(f"{self.origin}/ui{path}")
        return self.page

    def close(self) -> None:
        """Leave, and check that everything came from the page's own origin."""
        self.context.close()
        outside = [url for url in self.requested if not url.startswith((self.origin, "file:"))]
        assert outside == []


def wrong_sizes(page: Any, width: int) -> list[str]:
    """Return what is wider than the screen, and the texts below twelve pixels."""
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('body *')].filter(one => one.getClientRects().length"
        " && parseFloat(getComputedStyle(one).fontSize) < 12).map(one => one.outerHTML)"
    )
    wide = page.evaluate("document.documentElement.scrollWidth")
    return [*found, *([f"{wide} pixels wide"] if wide > width else [])]
