"""Executors: where a handler's code runs. One protocol, three kinds: `async_`, `thread`, `process`.

This package imports nothing that a child process does not need.
"""
