"""Exceptions on their way from a child process: described there as text, rebuilt here as something to match.

Nothing of the exception's own code runs in the worker: no un-pickling, no `__init__`, no `__str__`. What arrives is an
instance of its class all the same, if the worker knows that class, so that `retry_on` and `except` see what they name.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast

import msgspec

from fleetcron.decide.describe import cut, describe_error
from fleetcron.errors import Control, Discard, FleetcronError, PayloadError, RetryAfter, Snooze
from fleetcron.payload import safe_text
from fleetcron.worker.executors.reference import MAIN, MAIN_IN_CHILD

_MICROSECOND = timedelta(microseconds=1)


class ErrorFacts(msgspec.Struct, frozen=True, array_like=True):
    """An exception as text. `mro`: `module:qualname` of its class and what that inherits, nearest first."""

    mro: list[str]
    message: str
    traceback: str
    delay_us: int | None = None  # of RetryAfter and Snooze
    path: str | None = None  # of PayloadError


class RemoteError(FleetcronError):
    """What a handler raised in a child process. `str()` is its message, `traceback` the child's traceback as text.

    `mro_names` are the qualified names of its class and what that inherits. Where the worker knows those classes, the
    RemoteError is an instance of them too.
    """

    facts: ErrorFacts

    def __str__(self) -> str:
        return self.facts.message

    def __repr__(self) -> str:
        return f"{self.type_name}({self.facts.message!r})"

    @property
    def type_name(self) -> str:
        return self.facts.mro[0].rpartition(":")[2].rpartition(".")[2]

    @property
    def traceback(self) -> str:
        return self.facts.traceback

    @property
    def mro_names(self) -> tuple[str, ...]:
        return tuple(name.replace(":", ".") for name in self.facts.mro)


class RemoteTraceback(Exception):
    """Shows the child's traceback above that of the worker."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def describe(error: BaseException, limit_bytes: int) -> ErrorFacts:
    """`error` as text, each part at most `limit_bytes`. Never raises, whatever the exception's methods do."""
    line, trace = describe_error(error, limit_bytes)
    try:
        message = cut(safe_text(str.__str__(str(error))), limit_bytes)
    except BaseException:  # noqa: BLE001 - the exception's own __str__ runs here and may raise anything
        message = line.partition(": ")[2] or line
    delay = getattr(error, "delay", None) if isinstance(error, (RetryAfter, Snooze)) else None
    return ErrorFacts(
        mro=[f"{_module(kind)}:{safe_text(kind.__qualname__)}" for kind in type(error).__mro__],
        message=message,
        traceback=trace,
        delay_us=delay // _MICROSECOND if isinstance(delay, timedelta) else None,
        path=safe_text(str(error.path)) if isinstance(error, PayloadError) else None,
    )


def rebuild(facts: ErrorFacts) -> Exception:
    """The exception for the worker: a Control exactly, anything else as a RemoteError that is of its classes."""
    if (control := _control(facts)) is not None:
        return control
    error = _instance(facts)
    told = {"args": (facts.message,), "facts": facts, "__cause__": RemoteTraceback(facts.traceback)}
    if facts.path is not None:
        told["path"] = facts.path
    for name, value in told.items():
        object.__setattr__(error, name, value)
    return error


def _control(facts: ErrorFacts) -> Control | None:
    error: Control
    delay = (facts.delay_us or 0) * _MICROSECOND
    if _name(RetryAfter) in facts.mro:
        error = RetryAfter(delay)
    elif _name(Snooze) in facts.mro:
        error = Snooze(delay)
    elif _name(Discard) in facts.mro:
        error = Discard()
    else:
        return None
    error.args = (facts.message,)
    return error


def _instance(facts: ErrorFacts) -> RemoteError:
    bases = tuple(_bases(facts.mro))
    for some in (bases, bases[:1], ()):  # two classes may not go together where one does
        try:
            kind = _class(some, facts.mro[0])
            # The nearest builtin makes the instance: OSError's memory is not ValueError's, and the class's own
            # __new__ is left alone.
            builtin: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
            return cast("RemoteError", builtin.__new__(kind, facts.message))
        except Exception:  # noqa: BLE001, S112 - a metaclass or __init_subclass__ of the user's runs here
            continue
    return RemoteError(facts.message)


@functools.lru_cache(maxsize=256)
def _class(bases: tuple[type[Exception], ...], name: str) -> type[RemoteError]:
    module, _, qualname = name.partition(":")
    names: dict[str, Any] = {"__module__": module, "__qualname__": qualname}
    if any(hasattr(base, "__del__") for base in bases):  # it would look for what __init__ has not made
        names["__del__"] = lambda self: None  # noqa: ARG005
    return type(qualname.rpartition(".")[2], (RemoteError, *bases), names)


def _bases(mro: list[str]) -> Iterator[type[Exception]]:
    """The nearest classes that this process knows; those that they inherit come with them."""
    found: list[type[Exception]] = []
    for name in mro:
        kind = _known(name)
        if kind is not None and not issubclass(RemoteError, kind) and not any(issubclass(near, kind) for near in found):
            found.append(kind)
            yield kind


def _known(name: str) -> type[Exception] | None:
    """The exception class, if its module is imported already: `retry_on` can name no other, and nothing is run."""
    module, _, qualname = name.partition(":")
    main = sys.modules.get(MAIN)
    homes = [sys.modules.get(module)]
    if getattr(getattr(main, "__spec__", None), "name", None) == module:
        homes.insert(0, main)  # python -m module: what the child imported by name is our __main__
    for home in homes:
        found: object = home
        for part in qualname.split("."):
            found = getattr(found, part, None)
        if isinstance(found, type) and issubclass(found, Exception):
            return found
    return None


def _module(kind: type) -> str:
    module = safe_text(str(kind.__module__))
    return MAIN if module == MAIN_IN_CHILD else module


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"
