"""Pictures of every page for the docs, in Debian's Chromium, on a wide and on a narrow screen.

    python -m benchmarks.screenshots RUNS [--out docs/images/page] [--dark]

RUNS is a folder with finished trainings, of which the one that was written last shows its tenth
iteration and the longest its curves, and an evaluation of workers and a Conductor. A server
with simulated workers answers a few questions first, so that there are episodes. Needs playwright
and Pillow, which come with the extras ``dev`` and ``plots``.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks import results

from openconductor.report.runs.run_folders import CURVE, find_runs

WIDTHS = (1280, 400)
HEIGHTS = (640, 1200)
"""The least and the most pixels of a picture: a longer page is cut."""
QUALITY = 36
PORT = 8396
QUESTIONS = (
    "Take 4 17 9, put it in order and then double every number.",
    "Here is 60 7 31, turn it around, then say the hours in minutes.",
    "Take the smudged list 12 5 90, add one to each.",
)


def ask(question: str) -> None:
    """Ask the server a question."""
    body = {"model": "conductor", "messages": [{"role": "user", "content": question}]}
    address = f"http://127.0.0.1:{PORT}/v1/chat/completions"
    with urllib.request.urlopen(address, json.dumps(body).encode()) as answer:
        answer.read()


def addresses_of(runs: Path, episode: str, other: str) -> dict[str, str]:
    """Return the address of each page, by the name of its picture."""
    found = find_runs(runs)
    evaluation = next(run for run in found if run.kind == "evaluation").address
    finished = [run for run in found if run.kind == "training" and run.state == "finished"]
    trainings = sorted(finished, key=lambda run: (run.folder / CURVE).stat().st_size, reverse=True)
    training = trainings[0].address
    over = "&".join(f"run={run.name}" for run in trainings[:3])
    return {
        "episodes": "/episodes",
        "episode": f"/episodes/{episode}",
        "part": f"/episodes/{episode}/parts/0",
        "compare": f"/compare?id={episode}&id={other}",
        "ask": "/ask",
        "again": f"/episodes/{episode}/again",
        "runs": "/runs",
        "training": training,
        "iteration": f"{finished[0].address}/iterations/10",
        "trainings": f"/trainings?{over}",
        "evaluation": evaluation,
        "questions": f"{evaluation}/questions?show=apart",
        "pool": "/pool",
    }


def shoot(browser: Any, link: str, runs: Path, out: Path, scheme: str) -> None:
    """Enter by a link, and take a picture of every page in every size."""
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    page.goto(link)
    page.wait_for_selector(".episodes .go")
    links = page.eval_on_selector_all(".episodes .go", "all => all.map(one => one.pathname)")
    episode, other = (link.rpartition("/")[2] for link in links[:2])
    origin = link.partition("/ui")[0]
    for name, address in addresses_of(runs, episode, other).items():
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": HEIGHTS[0]})
            page.goto(f"{origin}/ui{address}")
            while "being read" in page.content():  # the numbers of the evaluation
                time.sleep(1)
            height = page.evaluate("document.documentElement.scrollHeight")
            page.set_viewport_size({"width": width, "height": min(height, HEIGHTS[1])})
            save(page.screenshot(), out / f"{name}-{width}.webp")


def save(picture: bytes, path: Path) -> None:
    """Write a picture as WebP."""
    from PIL import Image

    Image.open(io.BytesIO(picture)).convert("RGB").save(path, quality=QUALITY, method=6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/images/page"))
    parser.add_argument("--dark", action="store_true")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    options.out.mkdir(parents=True, exist_ok=True)
    runs: Path = options.runs.resolve()
    words = ["serve", "--ui", "--allow-asking", "--port", str(PORT), "--log-level", "warning"]
    command = [sys.executable, "-m", "openconductor", *words]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "runs").symlink_to(runs)
        with results.process(*command, cwd=folder, stderr=subprocess.PIPE) as server:
            assert server.stderr is not None
            link = None
            while link is None:
                link = re.search(r"http://\S+#token=\S+", server.stderr.readline())
            time.sleep(2)  # it listens soon after it has said so
            for question in QUESTIONS:
                ask(question)
            with sync_playwright() as playwright:
                chromium = shutil.which("chromium")
                browser = playwright.chromium.launch(
                    executable_path=chromium, args=["--no-sandbox"]
                )
                scheme = "dark" if options.dark else "light"
                shoot(browser, link.group(), runs, options.out, scheme)
                browser.close()
    sizes = {path.name: path.stat().st_size for path in sorted(options.out.glob("*.webp"))}
    print(json.dumps({"pictures": sizes, "bytes": sum(sizes.values())}))


if __name__ == "__main__":
    main()
