"""Public names of the price list; they are defined in ``openconductor.calls.prices``."""

from openconductor.calls.prices import find_price, price_line

__all__ = ["find_price", "price_line"]
