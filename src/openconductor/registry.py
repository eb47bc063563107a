"""How a shelf finds its things: plain dictionaries of ``name -> module:attribute``, imported when asked for.

In: such a dictionary and a name. Out: the attribute, or a ConfigError that names the nearest known name.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from openconductor.config import nearest
from openconductor.errors import ConfigError


def load_registered(shelf: Mapping[str, str], name: str, *, what: str) -> object:
    """Import what a shelf registers under a name.

    Raises:
        ConfigError: the shelf has no such name; ``what`` says what was looked for.
    """
    if name not in shelf:
        raise ConfigError(
            f"{what}: got {name!r}, expected one of {', '.join(sorted(shelf))}; nearest: {nearest(name, shelf)!r}"
        )
    module, _, attribute = shelf[name].partition(":")
    return getattr(importlib.import_module(module), attribute)
