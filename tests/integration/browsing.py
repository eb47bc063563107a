"""Servers of the page as processes, and who looks at them: Debian's Chromium without a screen,
driven by Playwright (``Visit``), or a client that only reads (``PageClient``).
"""

from __future__ import annotations

import http.client
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
        try:
            yield read_link(process), process
        finally:
            process.terminate()


def read_link(process: subprocess.Popen[str]) -> str:
    """Return the link to its page that a command prints."""
    assert process.stderr is not None
    for line in process.stderr:
        found = re.search(r"http://\S+#token=\S+", line)
        if found:
            return found.group()
    raise AssertionError("the command ended")


class PageClient:
    """A connection that has entered by a link."""

    def __init__(self, link: str) -> None:
        page, _, token = link.partition("#")
        origin = page.partition("/ui")[0]
        self._connection = http.client.HTTPConnection(origin.removeprefix("http://"))
        self._headers: dict[str, str] = {}
        self._send("POST", "/ui/session", token, {"origin": origin})

    def get(self, address: str) -> tuple[str, bytes]:
        """Return the media type of an address, and its body."""
        answer, body = self._send("GET", address, "", self._headers)
        assert answer.status == 200, (address, answer.status)
        return answer.headers.get_content_type(), body

    def close(self) -> None:
        self._connection.close()

    def _send(
        self, method: str, address: str, form: str, headers: dict[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        self._connection.request(method, address, form, headers)
        answer = self._connection.getresponse()
        cookie = answer.getheader("set-cookie")
        if cookie is not None:
            self._headers = {"cookie": cookie.partition(";")[0]}
        return answer, answer.read()


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
