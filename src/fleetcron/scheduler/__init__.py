"""Deciding what runs when: leadership of shards, and the services that a leader runs, one a file."""

from __future__ import annotations
