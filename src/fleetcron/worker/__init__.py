"""Running work: claim, run, complete, keep the lease."""

from __future__ import annotations
