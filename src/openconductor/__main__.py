"""``python -m openconductor``: the command line. In: arguments. Out: an exit code."""

from __future__ import annotations

import sys

from openconductor.cli import main

if __name__ == "__main__":
    sys.exit(main())
