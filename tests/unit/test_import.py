"""``import openconductor``: light, and every public name is where it says."""

from __future__ import annotations

import subprocess
import sys

import openconductor

HEAVY = {"torch", "transformers", "trl", "aiohttp", "safetensors", "numpy", "pydantic"}
HEAVY |= {"matplotlib", "starlette", "rich", "typer"}


def loaded_after(code: str) -> set[str]:
    """The modules that a fresh interpreter loads for some code."""
    program = f"import sys; before = set(sys.modules); {code}; print(*(set(sys.modules) - before))"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(result.stdout.split())


def test_importing_the_package_imports_nothing_but_itself() -> None:
    loaded = loaded_after("import openconductor")
    assert not loaded & HEAVY
    assert {name for name in loaded if name.startswith("openconductor")} == {"openconductor"}


def test_asking_with_functions_needs_no_http_client_and_no_schema_library() -> None:
    names = "oc.Conductor, oc.WorkerPool, oc.execute, oc.parse_workflow, oc.RewardFunction"
    code = f"import openconductor as oc; {names}"
    loaded = loaded_after(code)
    assert {"openconductor.conductor", "openconductor.pool", "openconductor.providers"} <= loaded
    assert not loaded & HEAVY


def test_the_price_list_is_read_only_when_it_is_asked_for() -> None:
    assert "genai_prices" not in loaded_after(
        "import openconductor.calls.prices, openconductor.pool"
    )


# tests/test_architecture.py resolves them.
def test_every_public_name_is_listed() -> None:
    assert set(openconductor.__all__) <= set(dir(openconductor))


def test_every_error_class_is_public() -> None:
    from openconductor import errors

    classes = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert classes <= set(openconductor.__all__)


def test_ask_demo_and_one_evaluated_system_import_no_pandas() -> None:
    loaded = loaded_after(
        "from openconductor.cli import main; "
        "sys.argv = ['openconductor', 'demo', '--quick', '--questions', '2']; "
        "\ntry: main()\nexcept SystemExit: pass\n"
        "import openconductor.cli.ask, openconductor.cli.eval, openconductor.evaluation.grid"
    )
    assert "openconductor.evaluation.gym_table" in loaded
    assert "pandas" not in loaded
