"""What an app declares: `@fleet.job`. Needs no database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from fleetcron.declare import DEFAULT_PRIORITY, Declared, Duration, make_job, make_schedule, make_trigger
from fleetcron.errors import ConfigError, NotFound
from fleetcron.model import ExecutorName, Misfire, Overlap, Retry
from fleetcron.options import Options
from fleetcron.worker.context import BlockingContext, Context
from fleetcron.worker.entry import Entry

P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])

_TRIGGER_OPTIONS = {"cron", "every", "at", "tz"}
SCHEDULE_OPTIONS = {"misfire", "misfire_grace", "catchup_limit", "overlap", "jitter", "start", "end", "start_deadline"}
_JOB_OPTIONS = {
    "queue",
    "priority",
    "timeout",
    "retry",
    "executor",
    "strict",
    "dead_letter",
    "start_deadline",
    "aliases",
    "max_running",
    "rate",
    "burst",
}


class Declarations:
    """The jobs of one app, by name and by function."""

    options: Options

    def __init__(self) -> None:
        self._declared: dict[str, Declared] = {}
        self._by_function: dict[Any, str] = {}

    @overload
    def job(self, name: F, /) -> F: ...
    @overload
    def job(
        self,
        name: str | None = None,
        /,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        at: datetime | None = None,
        tz: str = "UTC",
        misfire: Misfire | None = None,
        misfire_grace: Duration = "60s",
        catchup_limit: int = 1000,
        overlap: Overlap = "allow",
        jitter: Duration | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        start_deadline: Duration | None = None,
        queue: str = "default",
        priority: int = DEFAULT_PRIORITY,
        timeout: Duration | None = None,
        retry: Retry = ...,
        executor: ExecutorName | None = None,
        strict: bool = False,
        dead_letter: bool = True,
        max_running: int | None = None,
        rate: str | None = None,
        burst: int | None = None,
        aliases: Sequence[str] = (),
    ) -> Callable[[F], F]: ...
    @overload
    def job(self, /, *, name: str, **options: Any) -> Callable[[F], F]: ...
    def job(self, _name: Any = None, /, **options: Any) -> Any:
        """Declare a job: `@fleet.job` or `@fleet.job("name", cron="0 2 * * *", misfire="fire_once", …)`. The function stays as it is.

        `async def` runs on the worker's event loop, a plain `def` in a thread, `executor="process"` in a child process of its own, the only
        kind whose `timeout` stops any code. With `cron=`, `every=` or `at=` the job gets a schedule of its own name; then `misfire=` is
        required ("fire_all", "fire_once" or "skip"). `max_running` (runs at one time) and `rate` (starts in a time, "100/m", of which `burst`
        may come at once) hold over the whole fleet. Raises ConfigError or TriggerError at once for what cannot work.
        """
        if callable(_name):
            self._declare(_name, None, {})
            return _name

        def decorate(fn: F) -> F:
            self._declare(fn, options.pop("name", _name), options)
            return fn

        return decorate

    def _declare(self, fn: Callable[..., Any], name: str | None, options: dict[str, Any]) -> None:
        if unknown := sorted(set(options) - _JOB_OPTIONS - SCHEDULE_OPTIONS - _TRIGGER_OPTIONS):
            raise ConfigError(f"job {name or getattr(fn, '__name__', fn)!r}: unknown option {unknown[0]!r}")
        retry = options.get("retry", Retry())
        if not isinstance(retry, Retry):
            raise ConfigError(f"job {name or fn.__name__!r}: retry={retry!r}: expected Retry(max_attempts=…, …)")
        job, handler = make_job(
            fn,
            name,
            queue=options.get("queue", "default"),
            priority=options.get("priority", DEFAULT_PRIORITY),
            timeout=options.get("timeout"),
            retry=retry,
            executor=options.get("executor"),
            strict=options.get("strict", False),
            dead_letter=options.get("dead_letter", True),
            start_deadline=options.get("start_deadline"),
            aliases=options.get("aliases", ()),
            max_running=options.get("max_running"),
            rate=options.get("rate"),
            burst=options.get("burst"),
        )
        assert handler is not None
        for taken in (job.name, *job.aliases):
            if taken in self._declared and self._declared[taken].handler.fn is not fn:
                raise ConfigError(f"job {taken!r} is declared twice; give one of them another name")
        trigger = make_trigger(
            job.name, options.get("cron"), options.get("every"), options.get("at"), options.get("tz", "UTC")
        )
        schedule = None
        if trigger is not None:
            kept = {k: v for k, v in options.items() if k in SCHEDULE_OPTIONS}
            try:
                payload = handler.bind({}, self.options.max_payload)
            except ValueError as error:
                raise ConfigError(
                    f"job {job.name!r} has a trigger, so it must run without a payload: {error}"
                ) from None
            schedule = make_schedule(job.name, job, trigger, payload, **kept)
        elif stray := sorted(set(options) & (SCHEDULE_OPTIONS - {"start_deadline"})):
            raise ConfigError(
                f"job {job.name!r}: {stray[0]}= belongs to a trigger; add cron=, every= or at=, or use fleet.schedule"
            )
        self._declared[job.name] = Declared(job, handler, retry, schedule)
        self._by_function[fn] = job.name

    def entries(self) -> list[Entry]:
        """What a worker of this app can run."""
        return [Entry(d.job, handler=d.handler, retry=d.retry) for d in self._declared.values()]

    @overload
    def payload(
        self, job: Callable[Concatenate[Context, P], Any], *args: P.args, **kwargs: P.kwargs
    ) -> dict[str, Any]: ...
    @overload
    def payload(
        self, job: Callable[Concatenate[BlockingContext, P], Any], *args: P.args, **kwargs: P.kwargs
    ) -> dict[str, Any]: ...
    @overload
    def payload(self, job: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]: ...
    def payload(self, job: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The payload of a call, type-checked like the call: `fleet.submit(send, fleet.payload(send, user=42, text="hi"))`."""
        handler = self._declared[self._name_of(job)].handler
        names = [p.name for p in handler.parameters]
        if len(args) > len(names):
            raise TypeError(f"{handler.name} takes {len(names)} arguments, {len(args)} were given")
        given = dict(zip(names, args, strict=False))
        if twice := sorted(set(given) & set(kwargs)):
            raise TypeError(f"{handler.name} got {twice[0]!r} twice")
        return given | kwargs

    def _name_of(self, job: Callable[..., Any] | str) -> str:
        if isinstance(job, str):
            return job
        try:
            return self._by_function[job]
        except (KeyError, TypeError):
            raise NotFound(
                f"{job!r} is not a job of this fleet: decorate it with @fleet.job, or name a job by a string"
            ) from None
