"""The shape of the house: floors, light imports, registered shelves, small files, nothing of one machine."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "openconductor"
SOURCES = sorted(PACKAGE.rglob("*.py"))
LEARNING = {"torch", "transformers", "trl", "accelerate", "datasets", "onnx", "onnxscript"}
HEAVY = ("torch", "transformers", "trl", "onnxruntime", "pydantic_ai", "matplotlib", "starlette")
IMPORT_SECONDS = 0.25

TARGET = re.compile(r"[a-z_][\w.]*:[A-Za-z_]\w*")


def registries() -> list[tuple[str, str, str]]:
    """(module, registry, "module:attribute") for each entry of each upper-case dict of such strings in the package."""
    entries: list[tuple[str, str, str]] = []
    for path in SOURCES:
        for node in ast.parse(path.read_text("utf-8")).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            value = getattr(node, "value", None)
            if not (isinstance(targets[0], ast.Name) and targets[0].id.isupper() and isinstance(value, ast.Dict)):
                continue
            texts = [item.value for item in value.values if isinstance(item, ast.Constant)]
            if texts and all(isinstance(text, str) and TARGET.fullmatch(text) for text in texts):
                entries += [(path.relative_to(ROOT).as_posix(), targets[0].id, text) for text in texts]
    return entries


def optional_imports() -> set[str]:
    """The top-level modules that only an extra brings."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = {
        requirement
        for name, extra in project["optional-dependencies"].items()
        if name not in {"dev", "bench"}
        for requirement in extra
    }
    names = {re.split(r"[\[<>=~! ]", requirement)[0].replace("-", "_").removesuffix("_slim") for requirement in wanted}
    return names - {"openconductor"}


def missing_extra(error: ModuleNotFoundError) -> bool:
    """Whether an import failed for want of an optional extra that is indeed not installed."""
    name = (error.name or "").split(".")[0]
    return name in optional_imports() and find_spec(name) is None


def tracked_files() -> list[Path]:
    """What a commit of everything here would hold."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode != 0:
        pytest.skip(f"needs a git checkout: {listing.stderr.strip()}")
    return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_imports_only_point_down_the_floors() -> None:
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--no-cache",
        ],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT / "src"), "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def imported(path: Path) -> set[str]:
    """The top-level modules that a file imports anywhere, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


def test_only_learning_knows_torch() -> None:
    # A worker may be a model of transformers: its module is imported by name, where it is asked for.
    learning = {PACKAGE / "training", PACKAGE / "providers" / "transformers_lm.py"}
    answering = [path for path in SOURCES if not learning & {path, *path.parents}]
    found = {path.relative_to(PACKAGE).as_posix(): names for path in answering if (names := imported(path) & LEARNING)}
    assert answering
    assert not found, found


def test_importing_the_package_is_quick_and_brings_nothing_heavy() -> None:
    program = (
        "import sys, time; start = time.perf_counter(); import openconductor; "
        "print(time.perf_counter() - start, *sys.modules)"
    )
    seconds: list[float] = []
    for _ in range(5):
        output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        took, *modules = output.split()
        seconds.append(float(took))
        assert "openconductor" in modules
        assert not set(HEAVY) & set(modules)
    # The best of five: other work on the machine slows a run, nothing makes one faster than the code is.
    assert min(seconds) <= IMPORT_SECONDS, f"import openconductor took {seconds} s"


def test_every_public_name_resolves() -> None:
    package = importlib.import_module("openconductor")
    assert package.__all__
    for name in package.__all__:
        try:
            getattr(package, name)
        except ModuleNotFoundError as error:
            if not missing_extra(error):
                raise


def test_there_are_registries_to_check() -> None:
    assert "PROVIDERS" in {registry for _, registry, _ in registries()}


@pytest.mark.parametrize(("source", "registry", "target"), registries(), ids=str)
def test_every_registered_entry_resolves(source: str, registry: str, target: str) -> None:
    module, attribute = target.split(":")
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not missing_extra(error):
            raise
        pytest.skip(f"needs an extra that is not installed: {error}")
    assert hasattr(loaded, attribute), f"{source}: {registry} names {target}, which does not exist"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_source_file_holds_one_idea(path: Path) -> None:
    lines = path.read_text("utf-8").count("\n")
    assert lines <= 450, f"{path.relative_to(ROOT)} has {lines} lines: split it along its ideas"
    assert path.name not in {"utils.py", "util.py", "helpers.py", "common.py", "misc.py"}, "name a file after its noun"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text("utf-8"))), f"{path.relative_to(ROOT)} has no docstring"


def test_no_file_names_a_machine_or_a_package_registry() -> None:
    # The hosts and options are written in pieces, so that this file does not find itself.
    paths = "work|root|farm"
    hosts = "|".join(
        re.escape(host) for host in ("pypi" + ".org", "python" + "hosted.org", "download.py" + "torch.org")
    )
    options = "|".join(("extra-" + "index", "index-" + "url", "find-" + "links", "registry.npm" + "js"))
    forbidden = re.compile(rf"(?<![\w.])/(?:{paths})/|{hosts}|{options}".encode())
    found = [
        f"{path.relative_to(ROOT)}: {match.group().decode()}"
        for path in tracked_files()
        if (match := forbidden.search(path.read_bytes()))
    ]
    assert not found, found


def test_the_page_for_newcomers_to_the_code_stays_short() -> None:
    lines = (ROOT / "AGENTS.md").read_text("utf-8").count("\n")
    assert lines <= 60, f"AGENTS.md has {lines} lines"


def test_constraints_pin_plain_versions() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line)] == []
