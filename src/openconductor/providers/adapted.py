"""Objects with a ``complete`` method that do not subclass Provider."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakValueDictionary

from openconductor.protocols import CallContext, OnText, Provider, SupportsComplete
from openconductor.types import Completion, Message, Sampling


class AdaptedProvider(Provider):
    """Passes calls to an object with ``complete``; those attributes of Provider that it has count.

    They are read once. ``adapt`` makes one adapter an object.
    """

    def __init__(self, adapted: SupportsComplete) -> None:
        self.adapted = adapted
        for name in Provider.__annotations__:
            if hasattr(adapted, name):
                setattr(self, name, getattr(adapted, name))

    def __repr__(self) -> str:
        return repr(self.adapted)

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Complete the conversation as the object does."""
        return await self.adapted.complete(messages, sampling, call=call, on_text=on_text)

    async def aclose(self) -> None:
        """Close the object, where it has ``aclose``."""
        close = getattr(self.adapted, "aclose", None)
        if close is not None:
            await close()


_adapters: WeakValueDictionary[int, AdaptedProvider] = WeakValueDictionary()


def adapt(adapted: SupportsComplete) -> AdaptedProvider:
    """Return the object's adapter. It is one as long as it is used, because limits hang on it."""
    adapter = _adapters.get(id(adapted))
    if adapter is None:
        _adapters[id(adapted)] = adapter = AdaptedProvider(adapted)
    return adapter
