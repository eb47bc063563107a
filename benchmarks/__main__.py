"""Run every benchmark, one after the other: ``python -m benchmarks``; options go to each (``--json``)."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path


def main() -> None:
    """Run the scripts of this folder in the order of their names."""
    folder = Path(__file__).parent
    for path in sorted(folder.glob("[!_]*.py")):
        print(f"── {path.stem}", file=sys.stderr)
        runpy.run_path(str(path), run_name="__main__")


if __name__ == "__main__":
    main()
