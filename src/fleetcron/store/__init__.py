"""Where everything durable lies: one protocol, two adapters (SQLite embedded, PostgreSQL for the fleet)."""

from __future__ import annotations
