"""One subject at work: its processes, started together, counted, and killed by their own process groups."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.lab import HERE, PEERS, Lab, busy, cpu_of
from benchmarks.subjects import ADAPTERS, Subject

READY_WITHIN = 40.0


class Sample:
    """A fresh store and a fresh folder for one subject. `mode`: handlers count ("count") or write down when they start ("log")."""

    def __init__(self, lab: Lab, subject: Subject, mode: str, *, keep: bool = False, **env: str) -> None:
        self.lab, self.subject = lab, subject
        self.folder = lab.folder / subject.name
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        if subject.store == "sqlite":
            url = f"sqlite:///{self.folder}/bench.db"
        else:
            url = lab.url(subject.database) if keep else lab.fresh(subject.database)
        self.env = {
            **os.environ,
            "BENCH_DIR": str(self.folder),
            "BENCH_MODE": mode,
            "BENCH_DSN": url,
            "FLEETCRON_URL": url,
            "PYTHONPATH": os.pathsep.join([str(HERE.parent / "src"), str(ADAPTERS)]),
            "PYTHONWARNINGS": "ignore",
            "NODE_ENV": "production",
            **env,
        }
        self.url = url
        self.workers: list[subprocess.Popen[bytes]] = []

    @classmethod
    @contextlib.contextmanager
    def of(cls, lab: Lab, subject: Subject, mode: str, *, keep: bool = False, **env: str) -> Iterator[Sample]:
        """With its tables made; everything started for it is gone at the end."""
        sample = cls(lab, subject, mode, keep=keep, **env)
        try:
            if not keep:
                sample.tell("reset")
            yield sample
        finally:
            sample.stop()

    def tell(self, *words: object, timeout: float = 600) -> dict[str, Any]:
        """Have the adapter do something; returns what it says."""
        for script in ADAPTERS.glob("*.mjs"):  # node looks for packages beside the script
            if self.subject.adapter[-1].endswith(".mjs"):
                shutil.copy(script, PEERS / "node")
        done = subprocess.run(
            [*self.subject.adapter, *map(str, words)],
            env=self.env,
            cwd=ADAPTERS,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{self.subject.name} {words}: {done.stdout[-500:]} {done.stderr[-2000:]}")
        said = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        return json.loads(said[-1].removeprefix("RESULT ")) if said else {}

    def spawn(self, *command: str) -> subprocess.Popen[bytes]:
        """A process in a group of its own; `stop` ends it."""
        with (self.folder / f"process{len(self.workers)}.log").open("wb") as log:
            process = subprocess.Popen(
                command, env=self.env, cwd=ADAPTERS, stdout=log, stderr=log, start_new_session=True
            )
        self.workers.append(process)
        return process

    def start_one(self) -> subprocess.Popen[bytes]:
        """Start a worker that waits for the word."""
        return self.spawn(*self.subject.worker)

    def start(self, count: int = 1, *, go: bool = True) -> None:
        """Start workers and let them begin together, once all have loaded their code."""
        for _ in range(count):
            self.spawn(*self.subject.worker)
        until = time.monotonic() + READY_WITHIN
        while len(list(self.folder.glob("ready.*"))) < count and time.monotonic() < until:
            time.sleep(0.02)
        if go:
            (self.folder / "go").touch()

    def stop(self) -> None:
        for process in self.workers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.workers.clear()

    def again(self) -> None:
        """Stop the workers and forget what they counted."""
        self.stop()
        for pattern in ("*.cnt", "ready.*", "go"):
            for path in self.folder.glob(pattern):
                path.unlink()

    def check(self) -> None:
        for nth, process in enumerate(self.workers):
            if process.poll() is not None:
                said = (self.folder / f"process{nth}.log").read_text()[-2000:]
                raise RuntimeError(f"{self.subject.name}: a process ended with {process.returncode}: {said}")

    def counted(self) -> tuple[int, float]:
        """How many handlers have run, and when the first began."""
        count, first = 0, float("inf")
        for path in self.folder.glob("*.cnt"):
            fields = path.read_text().split()
            if len(fields) == 3:
                count, first = count + int(fields[0]), min(first, float(fields[1]))
        return count, first

    def starts(self) -> dict[int, float]:
        """When each run started, by its number."""
        found: dict[int, float] = {}
        for path in self.folder.glob("*.log"):
            if path.name.startswith("process"):
                continue
            for line in path.read_text().splitlines():
                number, at = line.split()[:2]
                found.setdefault(int(number), float(at))
        return found

    def remaining(self) -> int:
        if self.subject.store == "sqlite":
            name = "huey.db" if self.subject.name == "huey" else "bench.db"
            with contextlib.closing(sqlite3.connect(f"file:{self.folder / name}?mode=ro", uri=True)) as db:
                return int(db.execute(_sqlite(self.subject)).fetchone()[0])
        with self.lab.connect(self.subject.database) as c:
            return int(c.execute(self.subject.remaining).fetchall()[0][0])

    def drain(self, count: int, limit: float = 180) -> dict[str, float]:
        """Runs a second, from the first handler's start until the store says that nothing is left."""
        pids = [process.pid for process in self.workers]
        began, spent, ours, theirs = time.time(), busy(), cpu_of(pids), self.lab.cpu()
        mine = sum(os.times()[:2])
        while True:
            done, first = self.counted()
            if done >= count and self.remaining() == 0:
                end = time.time()
                break
            self.check()
            if time.time() - began > limit:
                raise RuntimeError(f"{self.subject.name}: {done} of {count} after {limit} s, {self.remaining()} left")
            time.sleep(0.003 if done >= count else 0.01)
        ours, theirs, mine = cpu_of(pids) - ours, self.lab.cpu() - theirs, sum(os.times()[:2]) - mine
        return {
            "rate": round(count / (end - first)),
            "us_worker": round(ours / count * 1e6, 1),
            "us_store": round(theirs / count * 1e6, 1),
            "foreign_cores": round(max(0.0, busy() - spent - ours - theirs - mine) / (time.time() - began), 2),
        }

    def sent(self) -> dict[int, float]:
        return {int(n): at for n, at in json.loads((self.folder / "sent.json").read_text())}

    def wait_for_starts(self, count: int, within: float) -> dict[int, float]:
        until = time.monotonic() + within
        while time.monotonic() < until and len(self.starts()) < count:
            self.check()
            time.sleep(0.1)
        return self.starts()


def _sqlite(subject: Subject) -> str:
    if subject.name == "huey":
        return subject.remaining
    return "SELECT (SELECT count(*) FROM ready WHERE due_at <= unixepoch('subsec') * 1000000) + (SELECT count(*) FROM lease)"


def log_of(folder: Path) -> str:
    """What the processes said, for error messages."""
    return "\n".join(path.read_text()[-1000:] for path in sorted(folder.glob("process*.log")))
