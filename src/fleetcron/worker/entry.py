"""What a worker can run: jobs of the app with their handlers, and jobs of the registry whose target needs none (shell)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fleetcron.handlers import Handler
from fleetcron.model import Job, Retry
from fleetcron.targets.shell import ShellTarget


class Entry:
    """A job as this worker runs it."""

    __slots__ = ("executor", "handler", "job", "retry", "shell", "timeout")

    def __init__(self, job: Job, *, handler: Handler | None, retry: Retry | None = None) -> None:
        self.job, self.handler = job, handler
        self.shell = ShellTarget.from_dict(job.target) if job.type == "shell" else None
        self.retry = retry or Retry(job.max_attempts, job.backoff, job.factor, job.max_backoff)
        self.timeout = None if job.timeout is None else job.timeout.total_seconds()
        self.executor = job.executor or ("async" if handler is None or handler.is_async else "thread")


class Entries:
    """Entries by the names that runs carry: a job's name and its aliases. The app's own win over the registry's."""

    def __init__(self, declared: Iterable[Entry]) -> None:
        self._declared: dict[str, Entry] = {}
        for entry in declared:
            for name in (entry.job.name, *entry.job.aliases):
                self._declared[name] = entry
        self._known = dict(self._declared)
        self.ids: dict[str, int] = {}  # of the registered jobs that this worker can run

    def refresh(self, registry: Iterable[Job]) -> list[int] | None:
        """Take in the registry; returns the ids of the jobs that this worker can run, None when it can run all of them."""
        known, complete = dict(self._declared), True
        ids: dict[str, int] = {}
        for job in registry:
            if job.name not in known and job.type == "shell":
                known[job.name] = Entry(job, handler=None)
            if job.name in known:
                ids[job.name] = job.id
            else:
                complete = False
        self._known, self.ids = known, ids
        return None if complete else list(ids.values())

    def get(self, name: str) -> Entry | None:
        return self._known.get(name)

    def items(self) -> Mapping[str, Entry]:
        return self._known
