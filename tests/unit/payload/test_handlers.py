"""Payloads become arguments: checked at submit, converted at the call, by one rule."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, TypedDict
from uuid import UUID

import msgspec
import pytest

from fleetcron.errors import ConfigError, PayloadError
from fleetcron.handlers import Handler
from fleetcron.worker.context import BlockingContext as Ctx

if TYPE_CHECKING:
    from fleetcron.worker.context import Context

KIB = 1024


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Item(msgspec.Struct):
    name: str


class Options(TypedDict, total=False):
    fast: bool


class Session:
    """Nothing that JSON could fill."""


def send(user: int, text: str = "hi") -> None: ...


def everything(
    day: date,
    at: datetime,
    clock: time,
    span: timedelta,
    uid: UUID,
    price: Decimal,
    colour: Colour,
    point: Point,
    item: Item,
    options: Options,
    many: list[Point] | None = None,
    level: Literal["a", "b"] = "a",
    anything: Any = None,
    untyped=None,  # type: ignore[no-untyped-def]
    maybe: int = None,  # type: ignore[assignment]  # noqa: RUF013 - people write this
    session: Session = None,  # type: ignore[assignment]
) -> None: ...


GIVEN: dict[str, Any] = {
    "day": date(2026, 1, 31),
    "at": datetime(2026, 1, 31, tzinfo=UTC),
    "clock": time(1, 2),
    "span": timedelta(minutes=5),
    "uid": UUID(int=7),
    "price": Decimal("9.90"),
    "colour": Colour.RED,
    "point": Point(1),
    "item": Item("i"),
    "options": {"fast": True},
}


def test_values_are_converted_to_the_annotated_types() -> None:
    handler = Handler(everything, "e")
    arguments = handler.arguments(handler.bind(GIVEN, KIB))
    assert arguments == GIVEN | {"many": None, "level": "a", "anything": None, "untyped": None, "maybe": None}


def test_the_json_form_of_a_value_is_as_good() -> None:
    handler = Handler(everything, "e")
    text = handler.bind(GIVEN, 10 * KIB)
    assert handler.arguments(handler.bind(json.loads(text), 10 * KIB)) == handler.arguments(text)


@pytest.mark.parametrize(
    ("change", "path", "says"),
    [
        ({"day": "31.1.2026"}, "$.day", "date"),
        ({"day": datetime(2026, 1, 1, tzinfo=UTC)}, "$.day", "date"),
        ({"at": "2026-01-31T00:00:00"}, "$.at", "timezone"),
        ({"uid": "x"}, "$.uid", "UUID"),
        ({"colour": "blue"}, "$.colour", "blue"),
        ({"point": {"x": "1"}}, "$.point.x", "expected `int`, got `str`"),
        ({"point": {}}, "$.point", "x"),
        ({"item": None}, "$.item", "null"),
        ({"options": {"fast": 1}}, "$.options.fast", "bool"),
        ({"many": [{"x": 1}, {"x": None}]}, "$.many[1].x", "int"),
        ({"level": "c"}, "$.level", "c"),
        ({"maybe": "1"}, "$.maybe", "int"),
        ({"session": 1}, "$.session", "Session"),
        ({"dya": 1}, "$.dya", "unexpected; e takes day, at,"),
        ({"ctx": 1}, "$.ctx", "unexpected"),
        ({"anything": float("nan")}, "$.anything", "nan"),
    ],
)
def test_what_does_not_fit_is_refused_at_submit(change: dict[str, Any], path: str, says: str) -> None:
    handler = Handler(everything, "e")
    with pytest.raises(PayloadError) as refused:
        handler.bind(GIVEN | change, 10 * KIB)
    assert refused.value.path == path
    assert says in str(refused.value)


def test_a_missing_argument_names_itself_and_what_there_is() -> None:
    with pytest.raises(PayloadError, match=r"at \$\.user: missing; send takes user, text \(optional\)") as refused:
        Handler(send, "send").bind({"text": "x"}, KIB)
    assert refused.value.path == "$.user"


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '{"user":"1"}', '{"user":1,"x":2}', "{}"])
def test_a_stored_payload_that_does_not_fit_is_refused_at_the_call(text: str) -> None:
    with pytest.raises(PayloadError):
        Handler(send, "send").arguments(text)


@pytest.mark.parametrize("payload", [{"user": True}, {"user": 1.5}, {"user": "1"}, {"user": None}])
def test_an_int_is_an_int(payload: Any) -> None:
    with pytest.raises(PayloadError, match="expected `int`"):
        Handler(send, "send").bind(payload, KIB)


def test_big_integers_arrive_exactly() -> None:
    handler = Handler(send, "send")
    for number in (2**53 + 1, 2**64, -(2**63), 10**4299):
        assert handler.arguments(handler.bind({"user": number}, 10 * KIB))["user"] == number


def test_no_payload_is_no_arguments() -> None:
    assert Handler(lambda: None, "j").bind(None, KIB) == "{}"
    assert Handler(lambda: None, "j").arguments("{}") == {}


def test_a_default_is_the_default_itself() -> None:
    shared: list[int] = []

    def collect(n: int, into: list[int] = shared) -> None: ...

    assert Handler(collect, "c").arguments('{"n":1}')["into"] is shared


def test_an_object_for_the_only_parameter_is_still_called_by_name() -> None:
    def one(point: Point) -> int:
        return point.x

    handler = Handler(one, "one")
    assert handler.call(None, handler.arguments(handler.bind({"point": Point(3)}, KIB))) == 3
    with pytest.raises(PayloadError, match="unexpected; one takes point"):
        handler.bind(Point(3), KIB)
    # … and a dataclass may well be the payload itself: its fields are the parameters
    assert Handler(lambda x, y: None, "xy").bind(Point(3), KIB) == '{"x":3,"y":0}'


def test_keyword_catch_alls_get_the_rest_unchecked() -> None:
    def some(ctx: Any, n: int = 1, **rest: int) -> None: ...

    handler = Handler(some, "some")
    assert handler.arguments(handler.bind({"n": 2, "x": "any", "y": [None]}, KIB)) == {"n": 2, "x": "any", "y": [None]}
    assert handler.arguments("{}") == {}
    with pytest.raises(PayloadError) as refused:
        handler.bind({"n": "2"}, KIB)
    assert refused.value.path == "$.n"


# ── what a function takes ────────────────────────────────────────────────────────────────────────────────────────────


async def by_name(ctx, n: int) -> None: ...  # type: ignore[no-untyped-def]


async def by_annotation(me: Ctx, n: int) -> None: ...


async def by_unseen_annotation(me: Context, n: int) -> None: ...


def positional(ctx: Ctx, /, n: int) -> None: ...


class Callables:
    async def method(self, ctx: Ctx, n: int) -> None: ...

    async def __call__(self, n: int) -> None: ...


@pytest.mark.parametrize(
    ("fn", "is_async", "takes_context"),
    [
        (send, False, False),
        (by_name, True, True),
        (by_annotation, True, True),
        (by_unseen_annotation, True, True),
        (positional, False, True),
        (Callables().method, True, True),
        (Callables(), True, False),
        (functools.partial(by_name, n=1), True, True),
        (functools.partial(send, 1), False, False),
    ],
)
def test_what_a_handler_is(fn: Callable[..., Any], is_async: bool, takes_context: bool) -> None:
    handler = Handler(fn, "j")
    assert (handler.is_async, handler.takes_context) == (is_async, takes_context)
    assert "ctx" not in {p.name for p in handler.parameters}


def test_a_wrapped_function_shows_the_parameters_of_the_inner_one() -> None:
    @functools.wraps(everything)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return everything(*args, **kwargs)

    handler = Handler(wrapper, "w")
    assert not handler.open
    assert handler.parameters[0].annotation is date


def positional_only(a: int, /) -> None: ...


def generator(a: int) -> Any:
    yield a


async def async_generator(a: int) -> Any:
    yield a


def keyword_context(*, ctx: Ctx) -> None: ...


def unfillable(session: Session) -> None: ...


def ambiguous(a: Point | dict[str, int]) -> None: ...


def unresolvable(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (positional_only, "parameter 'a' is positional-only"),
        (generator, "generator"),
        (async_generator, "generator"),
        (keyword_context, "by position"),
        (unfillable, "'session' is annotated Session, which JSON cannot fill"),
        (ambiguous, "'a' is annotated"),
        (unresolvable, "'Nowhere' of parameter 'a' cannot be resolved"),
        (5, "cannot be a handler"),
    ],
)
def test_functions_that_no_payload_can_call_are_refused_at_once(fn: Any, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Handler(fn, "the-job")
    assert says in str(refused.value)
    assert "'the-job'" in str(refused.value)
