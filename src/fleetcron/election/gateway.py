"""etcd's JSON gateway over `http.client`: whole numbers travel as strings, keys and values in base64, and what is false is left out.

Called on threads; one connection each for calls and for the watch. A member that does not answer within the timeout, or answers that it
has no leader, is passed over for the next. A token that is no longer known (they are lost with a restart, and age) is asked for again.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from fleetcron.clock import monotonic
from fleetcron.election.errors import ElectorUnreachable

_UNKNOWN_TOKEN = ("invalid auth token", "user name is empty", "revision of auth store is old")


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def decode(text: str) -> str:
    return base64.b64decode(text).decode(errors="replace")


class _Members:
    """Connections to one member at a time, with a token where there is an account."""

    def __init__(self, hosts: Sequence[tuple[str, int]], account: tuple[str, str] | None, timeout: float) -> None:
        self._hosts, self._account, self._timeout = list(hosts), account, timeout
        self._at = 0
        self._token: str | None = None
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        """Drop the connection; the next call makes another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _next(self) -> None:
        self.close()
        self._at = (self._at + 1) % len(self._hosts)

    def _send(self, path: str, body: dict[str, Any]) -> http.client.HTTPResponse:
        """One request to the present member. Raises OSError and HTTPException."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection(*self._hosts[self._at], timeout=self._timeout)
        headers = {"Content-Type": "application/json"} | ({"Authorization": self._token} if self._token else {})
        self._connection.request("POST", f"/v3/{path}", json.dumps(body), headers)
        return self._connection.getresponse()

    def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """One call to the present member. Raises _Refused, OSError and HTTPException."""
        if self._account is not None and self._token is None and path != "auth/authenticate":
            name, password = self._account
            self._token = self._ask("auth/authenticate", {"name": name, "password": password})["token"]
        response = self._send(path, body)
        text = response.read()
        if response.status != http.client.OK:
            raise _Refused(response.status, _message(text))
        found: dict[str, Any] = json.loads(text)
        if "error" in found:  # a stream that fails still begins with 200
            raise _Refused(http.client.OK, _message(text))
        return found


class Gateway(_Members):
    """Calls that are answered at once."""

    def call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer of the first member that has one. Raises ElectorUnreachable."""
        why, renewed, tries = "", False, len(self._hosts) + 1  # one more: a kept connection may have been closed since
        while tries > 0:
            tries -= 1
            began = monotonic()
            try:
                return self._ask(path, body)
            except _Refused as error:
                why = f"{self._hosts[self._at][0]}:{self._hosts[self._at][1]}: {error}"
                if self._account is not None and not renewed and any(text in str(error) for text in _UNKNOWN_TOKEN):
                    self._token, renewed, tries = None, True, tries + 1
                elif error.status < http.client.INTERNAL_SERVER_ERROR:
                    break
                else:
                    self._next()
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                why = f"{self._hosts[self._at][0]}:{self._hosts[self._at][1]}: {str(error) or type(error).__name__}"
                if isinstance(error, http.client.RemoteDisconnected | BrokenPipeError | ConnectionResetError) and monotonic() - began < 0.1:
                    self.close()  # a kept connection that the server has closed meanwhile: the same member again
                else:
                    self._next()
        self.close()
        raise ElectorUnreachable(why)


class Watch(_Members):
    """Deletions under a prefix, as they come. A watch is given up after `limit` seconds without a word: a path that swallows everything, and
    a token that has run out, leave it open and silent for ever."""

    def __init__(self, hosts: Sequence[tuple[str, int]], account: tuple[str, str] | None, limit: float) -> None:
        super().__init__(hosts, account, limit)
        self.stopped = False
        self._socket: socket.socket | None = None

    def stop(self) -> None:
        """End it, from another thread."""
        self.stopped = True
        if (open_socket := self._socket) is not None:
            with suppress(OSError):  # it was just closed
                open_socket.shutdown(socket.SHUT_RDWR)

    def deletions(self, key: str, range_end: str) -> Iterator[None]:
        """One None for every message of the server; ends when nothing was said for `limit` seconds. Raises ElectorUnreachable."""
        try:
            self._token = None  # a watch is opened every few seconds at most, and never with an old token
            if self._account is not None:
                name, password = self._account
                self._token = self._ask("auth/authenticate", {"name": name, "password": password})["token"]
            request = {"key": encode(key), "range_end": encode(range_end), "filters": ["NOPUT"]}
            response = self._send("watch", {"create_request": request})
            self._socket = None if self._connection is None else self._connection.sock
            if response.status != http.client.OK:
                raise _Refused(response.status, _message(response.read()))
            while not self.stopped and response.readline():
                yield None
            self._next()
        except TimeoutError:
            self.close()
        except (OSError, http.client.HTTPException, ValueError, KeyError, _Refused) as error:
            self._next()
            raise ElectorUnreachable(str(error)) from error
        finally:
            self._socket = None
            self.close()


class _Refused(Exception):
    """The member answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def _message(text: bytes) -> str:
    try:
        found = json.loads(text)
    except ValueError:
        return text[:200].decode(errors="replace")
    inner = found.get("error", found)
    return str(inner.get("message", inner) if isinstance(inner, dict) else inner)
