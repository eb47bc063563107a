"""The page of a wheel that is built from a fresh clone, in an environment of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import venv
from contextlib import closing
from pathlib import Path

import pytest

from integration.browsing import PageClient, read_link
from openconductor.store import Journal

ROOT = Path(__file__).resolve().parents[2]


def install(command: list[str]) -> None:
    """Run a command of pip; skip where the registry cannot be reached."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No matching distribution" in done.stderr or "Connection" in done.stderr:
        pytest.skip(f"needs a package registry: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of an environment with the wheel and its extra ``ui`` alone."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("needs a clone")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder / "clone")], check=True)
    venv.create(folder / "venv", with_pip=True)
    pip = [str(folder / "venv/bin/python"), "-m", "pip", "--disable-pip-version-check", "-q"]
    build = ["wheel", "--no-deps", "-w", str(folder), str(folder / "clone")]
    install([*pip, *build])
    (wheel,) = folder.glob("openconductor-*.whl")
    constraints = ["-c", str(folder / "clone/constraints.txt")]
    install([*pip, "install", *constraints, f"{wheel}[ui]"])
    shutil.rmtree(folder / "clone")
    return folder / "venv/bin/openconductor"


@pytest.mark.slow
def test_the_wheel_serves_page_styles_script_and_picture_without_node(
    program: Path, tmp_path: Path
) -> None:
    Journal(tmp_path / "asked.sqlite").close()
    empty = tmp_path / "bin"
    empty.mkdir()
    environment = {"PATH": str(empty), "HOME": str(tmp_path)}
    with subprocess.Popen(
        [program, "view", "asked.sqlite"],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            with closing(PageClient(read_link(process))) as client:
                media_type, page = client.get("/ui/episodes")
                assert media_type == "text/html"
                assert b"Nothing was asked yet." in page
                files = re.findall(r'(?:href|src)="(/ui/[\w.]+\?v=\w+)"', page.decode())
                types = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
                assert len(files) == len(types)
                for address in files:
                    packaged = address.partition("?")[0].rpartition("/")[2]
                    kind = types.pop(packaged.rpartition(".")[2])
                    own = ROOT / "src/openconductor/ui/static" / packaged
                    assert client.get(address) == (kind, own.read_bytes())
        finally:
            process.terminate()
