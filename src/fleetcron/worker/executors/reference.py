"""How a child process finds a handler: by module and name, as `import` would."""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from fleetcron.errors import ConfigError
from fleetcron.handlers import Handler

MAIN = "__main__"
MAIN_IN_CHILD = "__mp_main__"
"""What multiprocessing calls a program's main module in its children: `if __name__ == "__main__"` is false there."""


_importing: list[str] = []


class Reference(msgspec.Struct, frozen=True, array_like=True):
    """`qualname` in `module`; for a program that was started as a file, `path` is that file."""

    module: str
    qualname: str
    path: str | None = None

    def __str__(self) -> str:
        return f"{self.path or self.module}:{self.qualname}"


def reference(handler: Handler) -> Reference:
    """Where a child process imports the handler from.

    Raises ConfigError if it cannot: a lambda, a function inside a function, a bound method, a partial, a program typed
    at a prompt. Asks nothing of the module, so it may be called while the module is still being imported.
    """
    fn: Any = handler.fn
    module, qualname = getattr(fn, "__module__", None), getattr(fn, "__qualname__", "<no name>")
    if not module or "<" in qualname or inspect.ismethod(fn) or isinstance(fn, functools.partial):
        raise ConfigError(
            f"job {handler.name!r}: executor='process' needs a function that a child process can import by name; "
            f"{qualname} is not one: define it with `def` at the top level of a module"
        )
    if module != MAIN:
        return Reference(module, qualname)
    main = sys.modules[MAIN]
    if (spec := getattr(main, "__spec__", None)) is not None:
        return Reference(spec.name, qualname)  # python -m module
    path = getattr(main, "__file__", None)
    if path is None or not Path(path).is_file():
        raise ConfigError(
            f"job {handler.name!r}: executor='process' needs a function in a file; {qualname} was typed at a prompt"
        )
    return Reference(MAIN, qualname, str(Path(path).resolve()))


def load(where: Reference) -> Any:
    """The function, in a child. Raises what importing its module raises, and ConfigError if it is not there."""
    _importing.append(str(where))
    try:
        found: Any = importlib.import_module(where.module) if where.path is None else _main(where.path)
    finally:
        _importing.pop()
    for part in where.qualname.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ConfigError(
            f"a child process found no function {where}: if a decorator or an assignment replaced it, keep its name"
        )
    return found


def check_not_importing() -> None:
    """Raises ConfigError in a child that is importing a handler: what starts workers there would start them without
    end, each importing the same module."""
    if _importing:
        raise ConfigError(
            f"a child process imports {_importing[-1]}, and that starts a worker: put what starts it under "
            "`if __name__ == '__main__':`"
        )


@functools.cache
def _main(path: str) -> ModuleType:
    """The program at `path`, imported under a name that does not start it."""
    loader = importlib.machinery.SourceFileLoader(MAIN_IN_CHILD, path)
    spec = importlib.util.spec_from_file_location(MAIN_IN_CHILD, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MAIN] = sys.modules[MAIN_IN_CHILD] = module
    loader.exec_module(module)
    return module
