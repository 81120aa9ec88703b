"""Computing in child processes: a computation does not stop the other handlers, and one that hangs is killed.

fleetcron --app crunch:fleet run
fleetcron --app crunch:fleet submit crunch.primes --json-payload '{"below": 2000000}' --wait
fleetcron --app crunch:fleet submit crunch.stuck --wait
"""

from __future__ import annotations

from fleetcron import BlockingContext, Fleet, Retry

fleet = Fleet()


@fleet.job("crunch.primes", executor="process", timeout="5m")
def primes(ctx: BlockingContext, below: int) -> int:
    """How many primes there are. Each block is a step: a second attempt goes on where the first one stopped."""
    size = 100_000
    found = 0
    for start in range(0, below, size):
        found += ctx.step(f"from {start}", count, start, min(start + size, below))
        ctx.progress(min(start + size, below), below)
    return found


def count(start: int, end: int) -> int:
    """Primes in [start, end), by a sieve."""
    prime = bytearray([1]) * (end - start)
    for n in range(2, int(end**0.5) + 1):
        first = max(n * n, -(-start // n) * n)
        prime[first - start :: n] = bytes(len(range(first, end, n)))
    for n in (0, 1):
        if start <= n < end:
            prime[n - start] = 0
    return sum(prime)


@fleet.job("crunch.stuck", executor="process", timeout="2s", retry=Retry(max_attempts=1))
def stuck() -> None:
    """Never ends by itself, and would not notice a flag. After two seconds its process is killed."""
    while True:
        pass
