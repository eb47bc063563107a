"""Bodies of requests as mappings. In: what is sent anyway, what a user set. Out: both together, in JSON's own types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import cast


def laid_over(below: object, above: object) -> object:
    """``above`` in JSON's own types; where both are mappings, key by key over what stands ``below``.

    >>> laid_over({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}, "b": (4,)})
    {'a': {'x': 1, 'y': 3}, 'b': [4]}
    """
    if isinstance(above, Mapping):
        base = cast("Mapping[str, object]", below if isinstance(below, Mapping) else {})
        given = cast("Mapping[object, object]", above)
        return {**base, **{str(key): laid_over(base.get(str(key)), value) for key, value in given.items()}}
    if isinstance(above, list | tuple):
        return [laid_over(None, item) for item in cast("Sequence[object]", above)]
    if isinstance(above, Decimal) and above.is_finite():
        return int(above) if above == above.to_integral_value() else float(above)
    return above
