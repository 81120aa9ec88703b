"""What ends a demo early."""

from __future__ import annotations


class DemoFailed(Exception):
    """The fleet did not do in time what the next act needs. The message says what was waited for."""
