"""The extra that figures need. In: nothing. Out: nothing, or the error that says how to install it."""

from __future__ import annotations

from importlib import import_module

from openconductor.errors import ConfigError

INSTALL = 'pip install "openconductor[plots]"'


def require_extra() -> None:
    """Make sure that matplotlib is installed.

    Raises:
        ConfigError: it is not; the message says the command that installs it.
    """
    try:
        import_module("matplotlib.figure")
    except ImportError as error:
        raise ConfigError(f"plots: {error}; expected the extra 'plots' to be installed: {INSTALL}") from error
