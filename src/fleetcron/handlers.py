"""Handlers: what a job's function takes, and how a payload becomes its arguments.

One rule: the payload is an object, its keys are the handler's parameters. It is checked against the annotations at
submit, by decoding the very text that will be stored; so a value may be given as Python value (a date, a UUID, a
dataclass) or in its JSON form, and what is accepted at submit is what the handler gets.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec

from fleetcron import payload as payloads
from fleetcron.errors import ConfigError, PayloadError

_EMPTY = inspect.Parameter.empty
_CONTEXT_NAMES = frozenset({"Context", "BlockingContext"})
_AWARE = msgspec.Meta(tz=True)
_AT = re.compile(r"(.*) - at `(.+)`", re.DOTALL)


class ContextBase:
    """What marks a class as a handler's context: a first parameter annotated with one gets the context."""

    __slots__ = ()


class Parameter(msgspec.Struct, frozen=True):
    """A parameter that a payload fills. `annotation` is Any where there is none."""

    name: str
    annotation: Any
    default: Any = _EMPTY

    @property
    def required(self) -> bool:
        return self.default is _EMPTY


class Handler:
    """The function of a job, read once.

    Raises ConfigError if it cannot be called with a payload: positional-only parameters, annotations that cannot be
    resolved or that JSON cannot fill, generators.
    """

    __slots__ = ("_asdict", "_decode", "_own", "fn", "is_async", "name", "open", "parameters", "takes_context")

    def __init__(self, fn: Callable[..., Any], name: str) -> None:
        self.fn = fn
        self.name = name
        plain = _plain_function(fn)
        if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
            raise ConfigError(f"job {name!r}: the handler is a generator; return a value instead of yielding")
        self.is_async = inspect.iscoroutinefunction(plain)
        try:
            declared = list(inspect.signature(fn).parameters.values())
        except (TypeError, ValueError) as error:  # not callable, or a builtin that does not tell
            raise ConfigError(f"job {name!r}: {fn!r} cannot be a handler: {error}") from None
        self.takes_context = bool(declared) and _is_context(declared[0], fn)
        if self.takes_context:
            first = declared.pop(0)
            if first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
                raise ConfigError(
                    f"job {name!r}: the context {first.name!r} is passed by position; move it before the *"
                )
        self.open = any(p.kind is p.VAR_KEYWORD for p in declared)
        self._own: dict[str, str] = {}
        self.parameters = tuple(self._parameters(declared))
        self._decode, self._asdict = self._decoder()

    def __repr__(self) -> str:
        return f"Handler({self.name!r}, {self.fn!r})"

    def call(self, context: Any, arguments: dict[str, Any]) -> Any:
        """Call the function; `context` is passed only if it takes one. A coroutine if the function is async."""
        return self.fn(context, **arguments) if self.takes_context else self.fn(**arguments)

    def bind(self, payload: Any, max_bytes: int) -> str:
        """Check a payload against the parameters; its JSON text. Raises PayloadError with the path of what is wrong."""
        text = payloads.encode_payload(payload, max_bytes=max_bytes)
        try:
            self._decode(text)
        except msgspec.DecodeError as error:
            raise self._explained(error, text) from None
        return text

    def arguments(self, payload_text: str) -> dict[str, Any]:
        """The keyword arguments that a stored payload gives, in the annotated types. Raises PayloadError."""
        try:
            return self._asdict(self._decode(payload_text))
        except msgspec.DecodeError as error:
            raise self._explained(error, payload_text) from None

    def _parameters(self, declared: list[inspect.Parameter]) -> typing.Iterator[Parameter]:
        hints = self._hints(declared)
        for p in declared:
            if p.kind is p.POSITIONAL_ONLY:
                raise ConfigError(
                    f"job {self.name!r}: parameter {p.name!r} is positional-only, but a payload fills parameters by "
                    "name; remove the /"
                )
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                continue
            annotation = _aware(hints.get(p.name, Any))
            if p.default is None:
                annotation = annotation | None if annotation is not Any else Any
            problem = _problem(annotation)
            if problem is None:
                yield Parameter(p.name, annotation, p.default)
                continue
            why = f"is annotated {_show(hints[p.name])}, which JSON cannot fill ({problem})"
            if p.default is _EMPTY:
                raise ConfigError(
                    f"job {self.name!r}: parameter {p.name!r} {why}; use a JSON type, date, UUID, Decimal, Enum or "
                    "dataclass, or give it a default"
                )
            self._own[p.name] = why  # the function's own business (a client, a session): its default stands

    def _hints(self, declared: list[inspect.Parameter]) -> dict[str, Any]:
        """The resolved annotations, one by one: only those that a payload needs have to be importable."""
        space = _globals(self.fn)
        hints: dict[str, Any] = {}
        for p in declared:
            if p.annotation is _EMPTY or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                continue
            holder = types.SimpleNamespace(__annotations__={p.name: p.annotation})
            try:
                hints |= typing.get_type_hints(holder, globalns=space, include_extras=True)
            except (NameError, AttributeError, SyntaxError, TypeError) as error:
                raise ConfigError(
                    f"job {self.name!r}: the annotation {p.annotation!r} of parameter {p.name!r} cannot be resolved "
                    f"({error}); import it at module level, outside of `if TYPE_CHECKING:` and of functions"
                ) from error
        return hints

    def _decoder(self) -> tuple[Callable[[str], Any], Callable[[Any], dict[str, Any]]]:
        """Payload text to something, and that to keyword arguments. Built once; an int costs 0.5 µs then."""
        if self.open:
            named = {p.name: p.annotation if p.required else typing.NotRequired[p.annotation] for p in self.parameters}
            make: Any = typing.TypedDict  # type checkers want its keys as literals
            typed = msgspec.json.Decoder(make("Arguments", named))
            plain = msgspec.json.Decoder(dict[str, Any])
            return lambda text: plain.decode(text) | typed.decode(text), _same
        fields = [
            (p.name, p.annotation) if p.required else (p.name, p.annotation, _default(p.default))
            for p in sorted(self.parameters, key=lambda p: not p.required)
        ]
        struct = msgspec.defstruct("Arguments", fields, forbid_unknown_fields=True)
        return msgspec.json.Decoder(struct).decode, msgspec.structs.asdict

    def _explained(self, error: msgspec.DecodeError, text: str) -> PayloadError:
        """msgspec's complaint as ours: which parameter, and what the handler takes."""
        try:
            given = payloads.decode(text)
        except msgspec.DecodeError:
            return PayloadError(f"is not JSON: {error}")
        if not isinstance(given, Mapping):
            return PayloadError(f"expected an object whose keys are the parameters of {self.name}")
        takes = ", ".join(p.name if p.required else f"{p.name} (optional)" for p in self.parameters) or "nothing"
        names = {p.name for p in self.parameters}
        for key in [] if self.open else given:
            if key in self._own:
                return PayloadError(f"the parameter {self._own[key]}", payloads.path_text([key]))
            if key not in names:
                return PayloadError(f"unexpected; {self.name} takes {takes}", payloads.path_text([key]))
        for p in self.parameters:
            if p.required and p.name not in given:
                return PayloadError(f"missing; {self.name} takes {takes}", payloads.path_text([p.name]))
        found = _AT.fullmatch(str(error))
        message, path = found.groups() if found else (str(error), "$")
        return PayloadError(message[:1].lower() + message[1:], path)


def _same(arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments


def _default(value: Any) -> Any:
    # a factory hands over the default itself, as a call would; msgspec would copy a list and refuse some others
    return msgspec.field(default_factory=lambda: value)


def _plain_function(fn: Callable[..., Any]) -> Any:
    """The function behind partials, methods and callable objects; of a wrapped one, the wrapper (it is what runs)."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if inspect.isroutine(fn):
        return getattr(fn, "__func__", fn)
    return getattr(type(fn), "__call__", fn)  # noqa: B004 - the class's method, to see whether it is async


def _globals(fn: Callable[..., Any]) -> dict[str, Any]:
    """Where the annotations were written: the module of the innermost function, as `inspect.signature` sees it."""
    return getattr(inspect.unwrap(_plain_function(fn)), "__globals__", {})


def _is_context(first: inspect.Parameter, fn: Callable[..., Any]) -> bool:
    if first.kind in (first.VAR_POSITIONAL, first.VAR_KEYWORD):
        return False
    annotation = first.annotation
    if isinstance(annotation, str):
        # Often imported under TYPE_CHECKING only: the name then says it.
        found = _globals(fn).get(annotation)
        annotation = found if found is not None else annotation.rpartition(".")[2]
    is_marked = isinstance(annotation, type) and issubclass(annotation, ContextBase)
    return first.name == "ctx" or is_marked or (isinstance(annotation, str) and annotation in _CONTEXT_NAMES)


def _aware(annotation: Any) -> Any:
    """The annotation with each `datetime` in it made one that needs a zone, and `object` made Any."""
    if annotation is datetime:
        return Annotated[datetime, _AWARE]
    if annotation is object:
        return Any
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if not args or origin is typing.Literal:
        return annotation
    if origin is Annotated:
        return Annotated[(_aware(args[0]), *args[1:])]
    changed = tuple(map(_aware, args))
    if changed == args:
        return annotation
    if origin in (types.UnionType, typing.Union):
        return typing.Union[changed]  # noqa: UP007 - the members are known at run time only
    return origin[changed]


def _problem(annotation: Any) -> str | None:
    """Why JSON cannot fill such a parameter; None if it can."""
    if annotation is Any:
        return None
    try:
        msgspec.json.schema(annotation)  # the one thing that msgspec refuses at once for a class that it cannot build
        msgspec.json.Decoder(annotation)
    except Exception as error:  # noqa: BLE001 - TypeError mostly, but a dataclass with bad annotations raises NameError …
        return str(error).strip().splitlines()[-1]
    return None


def _show(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)
