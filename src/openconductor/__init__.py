"""OpenConductor: a small language model writes workflows over a pool of workers, and learns to.

The public names are in the stub beside this, ``__init__.pyi``. Each is imported when it is first
asked for (PEP 562), so ``import openconductor`` costs next to nothing and brings in nothing heavy.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false
import lazy_loader

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
