"""Server-sent events from bytes, however the network cut them.

Only `data` matters here. Lines end in LF, CRLF or CR; a line that begins with a colon is a comment
(servers send them to keep a connection alive); an event ends with an empty line.
"""

from __future__ import annotations


class EventParser:
    """Takes bytes as they arrive, gives the data of every event that is complete."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, received: bytes) -> list[str]:
        """Data of the events that these bytes complete."""
        text = self._rest + received
        held = b"\r" if text.endswith(b"\r") else b""  # may be the first half of CRLF
        lines = text.removesuffix(held).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop() + held
        return [event for line in lines if (event := self._line(line)) is not None]

    @property
    def is_between_events(self) -> bool:
        """False when the bytes so far end inside an event."""
        return not (self._rest.strip() or self._data)

    def _line(self, line: bytes) -> str | None:
        if line:
            field, _, value = line.partition(b":")
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
            return None
        if not self._data:
            return None
        data, self._data = b"\n".join(self._data), []
        return data.decode(errors="replace")
