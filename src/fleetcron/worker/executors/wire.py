"""What a worker and its child process say to each other: JSON in frames over a socket.

JSON and not pickle: an exception that cannot be un-pickled, or whose un-pickling runs code, never gets into the worker.
A frame is 8 bytes that are random per child, 4 bytes of length, and the JSON. A handler that writes into descriptors
that are not its own hits the socket hardly ever (it is moved out of the way), and never with those 8 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from fleetcron.worker.context import RunFacts
from fleetcron.worker.executors.reference import Reference
from fleetcron.worker.executors.remote import ErrorFacts

HEADER = struct.Struct(">8sI")
SECRET_BYTES = 8


class Frame(msgspec.Struct, tag=True, array_like=True):
    """Base of all frames."""


class Hello(Frame):
    """The first, to the child."""

    argv: list[str]
    log_level: int
    max_result: int
    max_error: int


class Run(Frame):
    """To the child: run this. `name` is the job's."""

    reference: Reference
    name: str
    facts: RunFacts | None
    payload: str


class Stop(Frame):
    """To the child: SIGTERM is about to come for the run. `timeout` in seconds, None if it is not the reason."""

    timeout: float | None


class Reply(Frame):
    """To the child: the answer to a Call, a JSON text, or an error's class name and message."""

    id: int
    value: str | None = None
    error: tuple[str, str] | None = None


class Bye(Frame):
    """To the child: end."""


class Started(Frame):
    """From the child: the handler is imported, its arguments fit, it is called now. The timeout counts from here."""


class Returned(Frame):
    """From the child: the result as JSON text."""

    value: str | None


class Raised(Frame):
    """From the child: the handler raised."""

    error: ErrorFacts


class Call(Frame):
    """From the child: the handler asks something of the engine."""

    id: int
    run_id: int
    method: str
    name: str = ""
    json: str = ""
    done: float = 0
    total: float | None = None
    note: str | None = None


class Stopping(Frame):
    """From the child: Stop has been read."""


ToChild = Hello | Run | Stop | Reply | Bye
ToParent = Started | Returned | Raised | Call | Stopping

_encode = msgspec.json.Encoder().encode
decode_to_child = msgspec.json.Decoder[ToChild](ToChild).decode
decode_to_parent = msgspec.json.Decoder[ToParent](ToParent).decode


class Garbled(Exception):
    """Something that is no frame came out of the socket."""


def pack(secret: bytes, frame: ToChild | ToParent) -> bytes:
    """A frame as bytes."""
    body = _encode(frame)
    return HEADER.pack(secret, len(body)) + body


class Unpacker:
    """Bytes in, frame bodies out. Raises Garbled."""

    __slots__ = ("_buffer", "_secret")

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The bodies that are complete with `data`."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= HEADER.size:
            secret, length = HEADER.unpack_from(buffer)
            if secret != self._secret:
                raise Garbled
            end = HEADER.size + length
            if len(buffer) < end:
                return
            body = bytes(buffer[HEADER.size : end])
            del buffer[:end]
            yield body
