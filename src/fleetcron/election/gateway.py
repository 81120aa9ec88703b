"""etcd's JSON gateway over `http.client`: whole numbers travel as strings, keys and values in base64, and what is false is left out.

Called on threads; one connection each for calls and for the watch. A member that does not answer within the timeout, or answers that it
has no leader, is passed over for the next. A token that is no longer known (they are lost with a restart, and age) is asked for again.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from fleetcron.clock import monotonic
from fleetcron.election.errors import ElectorUnreachable

_HASHING = 2.0
"""Seconds for an authentication: the server hashes the password, slowly on purpose (0.1 s of one core)."""
_UNKNOWN_TOKEN = ("invalid auth token", "user name is empty", "revision of auth store is old")


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def decode(text: str) -> str:
    return base64.b64decode(text).decode(errors="replace")


class _Members:
    """A connection to one member at a time; over TLS if there is a context for it."""

    def __init__(self, hosts: Sequence[tuple[str, int]], context: ssl.SSLContext | None) -> None:
        self._hosts, self._at, self._context = list(hosts), 0, context
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        """Drop the connection; the next call makes another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _next(self) -> None:
        self.close()
        self._at = (self._at + 1) % len(self._hosts)

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        host, port = self._hosts[self._at]
        if self._context is None:
            return http.client.HTTPConnection(host, port, timeout=timeout)
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._context)

    def _send(self, path: str, body: dict[str, Any], token: str | None, timeout: float) -> http.client.HTTPResponse:
        """One request to the present member. Raises OSError and HTTPException."""
        if self._connection is None:
            self._connection = self._connect(timeout)
        elif self._connection.sock is not None:
            self._connection.sock.settimeout(timeout)
        headers = {"Content-Type": "application/json"} | ({"Authorization": token} if token else {})
        self._connection.request("POST", f"/v3/{path}", json.dumps(body), headers)
        return self._connection.getresponse()

    def _ask(self, path: str, body: dict[str, Any], token: str | None, timeout: float) -> dict[str, Any]:
        """One call to the present member. Raises _Refused, OSError and HTTPException."""
        response = self._send(path, body, token, timeout)
        text = response.read()
        if response.status != http.client.OK:
            raise _Refused(response.status, _message(text))
        found: dict[str, Any] = json.loads(text)
        if "error" in found:  # a stream that fails still begins with 200
            raise _Refused(http.client.OK, _message(text))
        return found


class Gateway(_Members):
    """Calls that are answered at once. `timeout`: seconds for each member; `account`: name and password."""

    def __init__(
        self,
        hosts: Sequence[tuple[str, int]],
        account: tuple[str, str] | None,
        timeout: float,
        context: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(hosts, context)
        self._account, self._timeout = account, timeout
        self.token: str | None = None

    def call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer of the first member that has one. Raises ElectorUnreachable."""
        why, renewed, tries = "", False, len(self._hosts) + 1  # one more: a kept connection may have been closed since
        while tries > 0:
            tries -= 1
            began = monotonic()
            try:
                if self._account is not None and self.token is None:
                    self.token = self._authenticate(*self._account)
                return self._ask(path, body, self.token, self._timeout)
            except _Refused as error:
                why = f"{self._hosts[self._at][0]}:{self._hosts[self._at][1]}: {error}"
                if self._account is not None and not renewed and any(text in str(error) for text in _UNKNOWN_TOKEN):
                    self.token, renewed, tries = None, True, tries + 1
                elif error.status < http.client.INTERNAL_SERVER_ERROR:
                    break
                else:
                    self._next()
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                why = f"{self._hosts[self._at][0]}:{self._hosts[self._at][1]}: {_reason(error)}"
                if (
                    isinstance(error, http.client.RemoteDisconnected | BrokenPipeError | ConnectionResetError)
                    and monotonic() - began < 0.1
                ):
                    self.close()  # a kept connection that the server has closed meanwhile: the same member again
                else:
                    self._next()
        self.close()
        raise ElectorUnreachable(why)

    def _authenticate(self, name: str, password: str) -> str:
        body = {"name": name, "password": password}
        return str(self._ask("auth/authenticate", body, None, max(self._timeout, _HASHING))["token"])


class Watch(_Members):
    """Deletions under a prefix, as they come. A watch is given up after `limit` seconds without a word: a path that swallows everything, and
    a token that has run out, leave it open and silent for ever (case C32). Its token is the one that `gateway` has last been given."""

    def __init__(
        self, hosts: Sequence[tuple[str, int]], gateway: Gateway, limit: float, context: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(hosts, context)
        self._gateway, self._limit, self.stopped = gateway, limit, False
        self._socket: socket.socket | None = None

    def stop(self) -> None:
        """End it, from another thread."""
        self.stopped = True
        if (open_socket := self._socket) is not None:
            with suppress(OSError):  # it was just closed
                # The plain socket's: a TLS socket's own takes its state away from the thread that reads.
                socket.socket.shutdown(open_socket, socket.SHUT_RDWR)

    def deletions(self, key: str, range_end: str) -> Iterator[None]:
        """One None for every message of the server; ends when nothing was said for `limit` seconds. Raises ElectorUnreachable."""
        try:
            request = {"key": encode(key), "range_end": encode(range_end), "filters": ["NOPUT"]}
            response = self._send("watch", {"create_request": request}, self._gateway.token, self._limit)
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


def _reason(error: Exception) -> str:
    text = str(error) or type(error).__name__
    # All that a client hears of an alert that comes after a TLS 1.3 handshake.
    return f"{text} (does it ask for a client certificate?)" if isinstance(error, ssl.SSLEOFError) else text


def _message(text: bytes) -> str:
    try:
        found = json.loads(text)
    except ValueError:
        return text[:200].decode(errors="replace")
    inner = found.get("error", found)
    return str(inner.get("message", inner) if isinstance(inner, dict) else inner)
