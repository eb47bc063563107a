"""Every test of the page needs the extra 'ui'."""

import pytest

pytest.importorskip("jinja2", reason="needs the extra 'ui'")
pytest.importorskip("starlette", reason="needs the extra 'ui'")
