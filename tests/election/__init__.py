"""Electors and shards: who leads what, under every fault that the machine can show."""
