"""The options of a fleet: checked once, at the edge, whether they come from code, the environment or the command line."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from fleetcron.durations import parse_duration
from fleetcron.election import parse_elector
from fleetcron.errors import ConfigError
from fleetcron.sizes import parse_size

DEFAULT_URL = "sqlite:///fleetcron.db"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Every option of `Fleet`, parsed. Durations are timedelta, sizes are bytes."""

    url: str
    schema: str = "fleetcron"
    lease: timedelta = timedelta(seconds=15)
    heartbeat: timedelta = timedelta(seconds=5)
    election_ttl: timedelta = timedelta(seconds=5)
    shards: int = 1
    elector: str = "database"
    direct_url: str | None = None
    pgbouncer: bool = False
    max_payload: int = 1024 * 1024
    max_result: int = 256 * 1024
    max_error: int = 64 * 1024
    priority_ageing: timedelta = timedelta(minutes=1)
    retention: timedelta = timedelta(days=30)
    auto_migrate: bool = False


def parse_options(url: str | None, given: Mapping[str, Any], env: Mapping[str, str] | None = None) -> Options:
    """Options from keyword arguments, then FLEETCRON_<NAME> in the environment, then the defaults.

    Raises ConfigError naming the option, its value, where it came from and what is allowed; unknown names are refused.
    """
    env = os.environ if env is None else env
    if unknown := sorted(set(given) - set(Options.__struct_fields__)):
        raise ConfigError(
            f"unknown option {unknown[0]!r}; allowed are {', '.join(sorted(set(Options.__struct_fields__) - {'url'}))}"
        )
    found: dict[str, Any] = {"url": url or env.get("FLEETCRON_URL") or DEFAULT_URL}
    for name in Options.__struct_fields__[1:]:
        variable = f"FLEETCRON_{name.upper()}"
        if name in given:
            value, source = given[name], f"option {name}"
        elif env.get(variable):
            value, source = env[variable], variable
        else:
            continue
        if value is not None:
            found[name] = _parse(name, value, source)
    if "lease" in found and "heartbeat" not in found:
        found["heartbeat"] = found["lease"] / 3
    options = Options(**found)
    if options.lease < 3 * options.heartbeat:
        raise ConfigError(
            f"lease ({options.lease.total_seconds():g}s) must be at least 3 × heartbeat ({options.heartbeat.total_seconds():g}s): "
            "two heartbeats may fail before the work is given to somebody else"
        )
    return options


def _parse(name: str, value: Any, source: str) -> Any:
    try:
        match name:
            case "lease" | "heartbeat" | "election_ttl" | "retention":
                return parse_duration(value, name=source)
            case "priority_ageing":
                return parse_duration(value, name=source, allow_zero=True)
            case "max_payload" | "max_result" | "max_error":
                return parse_size(value, source)
            case "shards":
                return _whole(value, source)
            case "elector":
                parse_elector(str(value))
                return str(value)
            case "pgbouncer" | "auto_migrate":
                return _flag(value, source)
            case "schema":
                if not isinstance(value, str) or not _SCHEMA.fullmatch(value):
                    raise ValueError(
                        f"{source}: {value!r} is not a schema name; expected lower-case letters, digits and _"
                    )
                return value
            case _:
                if not isinstance(value, str):
                    raise ValueError(f"{source}: {value!r} is not text")  # noqa: TRY004  # made a ConfigError below
                return value
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _whole(value: Any, source: str) -> int:
    try:
        number = int(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else 0
    except ValueError:
        number = 0
    if not 1 <= number <= 4096:
        raise ValueError(f"{source}: {value!r} is not a whole number from 1 to 4096")
    return number


def _flag(value: Any, source: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    raise ValueError(f"{source}: {value!r} is neither true nor false")
