"""What the libraries of learning say to their own developers is kept out of a training's lines.

In: nothing. Out: a block in which their bars are not drawn and their FutureWarnings (about each other's next release)
are not shown. Their other warnings and their errors are, as ours are.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager

from transformers.utils import logging

_LIBRARIES = "torch|transformers|trl|accelerate|datasets|onnx|onnxruntime"


@contextmanager
def quiet_libraries(*, bars: bool = False) -> Generator[None]:
    """Keep the libraries quiet inside the block; with ``bars``, what is downloaded or loaded shows how far it is."""
    shown = logging.is_progress_bar_enabled()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module=rf"({_LIBRARIES})(\.|$)")
        if not bars:
            logging.disable_progress_bar()
        try:
            yield
        finally:
            if shown:
                logging.enable_progress_bar()
