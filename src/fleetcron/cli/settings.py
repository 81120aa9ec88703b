"""What was said before and after the command: which database, which app, and how to print."""

from __future__ import annotations

import functools
import os
import sys
import traceback
from collections.abc import Callable, Coroutine
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import click

from fleetcron.errors import ConfigError, FleetcronError

if TYPE_CHECKING:
    from fleetcron.fleet import Fleet

P = ParamSpec("P")


class AppError(FleetcronError):
    """The app raised while it was imported. Its traceback has been printed: the fault is in there."""


class Settings:
    """The options that every command takes."""

    def __init__(self) -> None:
        self.url: str | None = None
        self.app: str | None = None
        self.json = False

    def fleet(self, **options: Any) -> Fleet:
        """The app's fleet, or one without an app; `options` (None: not given) and --url win over what the app says."""
        from fleetcron.fleet import Fleet  # lazy: costs 100 ms, and `next`, `explain` and --help need none

        app = self.app or os.environ.get("FLEETCRON_APP")
        given = {name: value for name, value in options.items() if value is not None}
        if app is None:
            return Fleet(self.url, **given)
        fleet = load(app)
        if self.url is not None or given:
            fleet.configure(self.url, **given)
        return fleet


def load(app: str) -> Fleet:
    """The fleet that `module:attribute` names. Raises ConfigError when it is not there, AppError if importing fails."""
    from fleetcron.fleet import Fleet  # lazy: see above

    module_name, _, attribute = app.partition(":")
    attribute = attribute or "fleet"
    if not all(part.isidentifier() for part in (*module_name.split("."), *attribute.split("."))):
        raise ConfigError(f"--app {app!r}: expected module:fleet, such as billing.jobs:fleet")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    value = module = _module(app, module_name, here)
    for part in attribute.split("."):
        if not hasattr(value, part):
            known = sorted(name for name, found in vars(module).items() if isinstance(found, Fleet))
            hint = f"; it has {', '.join(known)}" if known else "; there is no Fleet in it"
            raise ConfigError(f"--app {app!r}: {module_name} has no {attribute!r}{hint}")
        value = getattr(value, part)
    if not isinstance(value, Fleet):
        raise ConfigError(f"--app {app!r}: {attribute} is a {type(value).__name__}, not a Fleet")
    return value


def _module(app: str, name: str, here: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"--app {app!r}: no module named {error.name!r} in {here} or on the import path"
            ) from None
        raise _app_error(app, error) from error
    except FleetcronError:
        raise
    except Exception as error:
        raise _app_error(app, error) from error


def _app_error(app: str, error: Exception) -> AppError:
    traceback.print_exception(error)
    return AppError(f"--app {app!r}: importing it failed: {type(error).__name__}: {error}")


def asynchronous(command: Callable[Concatenate[Settings, P], Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A command that opens its fleet itself, when it has checked what it was given."""

    @click.pass_obj
    @functools.wraps(command)
    def run(settings: Settings, /, *args: P.args, **kwargs: P.kwargs) -> None:
        import asyncio  # lazy: 50 ms

        asyncio.run(command(settings, *args, **kwargs))

    return run


def with_fleet(
    command: Callable[Concatenate[Fleet, Settings, P], Coroutine[Any, Any, None]],
) -> Callable[P, None]:
    """A command that looks or steers: it gets an open fleet that registers nothing, and the settings."""

    @asynchronous
    @functools.wraps(command)
    async def run(settings: Settings, /, *args: P.args, **kwargs: P.kwargs) -> None:
        async with settings.fleet().operator() as fleet:
            await command(fleet, settings, *args, **kwargs)

    return run


def with_app(
    command: Callable[Concatenate[Fleet, Settings, P], Coroutine[Any, Any, None]],
) -> Callable[P, None]:
    """A command that is part of the app: it gets the app's own fleet, open: jobs are registered, payloads checked."""

    @asynchronous
    @functools.wraps(command)
    async def run(settings: Settings, /, *args: P.args, **kwargs: P.kwargs) -> None:
        async with settings.fleet() as fleet:
            await command(fleet, settings, *args, **kwargs)

    return run
