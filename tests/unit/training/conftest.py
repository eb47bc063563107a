"""Everything here needs the extra 'train'."""

from __future__ import annotations

import pytest

pytest.importorskip("trl", reason="needs the extra 'train': pip install 'openconductor[train]'")
