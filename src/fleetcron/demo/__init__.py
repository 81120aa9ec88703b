"""`fleetcron demo`: a nightly report under kill -9, an outage under each misfire policy, a poison job, and a verdict.

`app.py` with `pipeline.py` is the example to copy. The rest is the theatre around it: `nodes.py` starts and kills real
nodes, `story.py` is the plot, `facts.py` what was seen, `verdicts.py` judges it, `telling.py` prints, `program.py`
puts them together and cleans up.
"""

from __future__ import annotations


def main(*, url: str | None = None, keep: bool = False, json: bool = False) -> int:
    """Play the demo, within a minute.

    `url`: an empty database to play on instead of a temporary SQLite file. `keep`: leave the temporary folder
    (database, reports, logs). `json`: facts and verdicts as one JSON document on stdout, the commentary on stderr.
    Returns the exit code: 0; 1 if a promise was broken; 128 + n if stopped by signal n. Raises ConfigError for a
    database that is in use, StoreUnavailable for one that cannot be reached.
    """
    from fleetcron.demo.program import run  # lazy: the demo's nodes import this package, and never play

    return run(url=url, keep=keep, as_json=json)
