"""Server-sent events. In: the bytes of a stream, cut anywhere. Out: the data of its events, as bytes.

Works on bytes, so a character that is split over two chunks is whole again before it is decoded. Lines end in LF or
CRLF (a bare CR, which the specification also allows, is no line end here). Comments and other fields are skipped. Our
own, because it is forty lines: the libraries for it are tied to one HTTP client or decode what they are given.
"""

from __future__ import annotations


class EventStream:
    """Splits server-sent events into their data, however the bytes are cut."""

    __slots__ = ("_data", "_rest")

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # the pieces of a line whose end has not come
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that this chunk ended."""
        if b"\n" not in chunk:
            self._rest.append(chunk)
            return []
        lines = (b"".join((*self._rest, chunk)) if self._rest else chunk).split(b"\n")
        rest = lines.pop()
        self._rest = [rest] if rest else []
        return [event for line in lines if (event := self._line(line)) is not None]

    def end(self) -> bytes | None:
        """The data of an event that was not closed by an empty line, if there is one."""
        self._line(b"".join(self._rest))
        self._rest = []
        return self._line(b"")

    def _line(self, line: bytes) -> bytes | None:
        if line[-1:] == b"\r":
            line = line[:-1]
        if line:
            if line[:6] == b"data: ":
                self._data.append(line[6:])
            elif line[:5] == b"data:":
                self._data.append(line[5:])
            return None
        if not self._data:
            return None
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        self._data.clear()
        return data
