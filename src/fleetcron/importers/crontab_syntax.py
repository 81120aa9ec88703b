"""The lines of a crontab, taken apart as Debian's cron does it: crontab(5), and the program where the page is silent.

Everything here raises `RefusedError` for what that cron would refuse, skip over, or read differently from fleetcron.
"""

from __future__ import annotations

import re

BLANKS = " \t"  # ASCII, as in C: a no-break space is text
MACROS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")

_SETTING = re.compile(
    r"""(?: '(?P<single>[^'=]+)' | "(?P<double>[^"=]+)" | (?P<plain>[^\s='"][^\s=]*) ) \s* = \s* (?P<value>.*)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_FIELDS = re.compile(r"([^ \t]+)[ \t]+" * 5)
_ITEM = re.compile(r"(\*|[0-9]{1,9}|[A-Za-z]{3})(?:-([0-9]{1,9}|[A-Za-z]{3}))?(?:/([0-9]{1,9}))?", re.ASCII)
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*\$?", re.ASCII)
_PERCENT = re.compile(r"\\([%\\])|(%)|\\.|\\", re.DOTALL)

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_KINDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 7, _WEEKDAYS),
)
_EXTENSIONS = ((r"~", "random times are cronie's"), (r"[LW#?]", "an extension of other crons"), (r"H", "Jenkins' hash"))


class RefusedError(Exception):
    """The line cannot be imported; the message is the reason."""


def setting(line: str) -> tuple[str, str] | None:
    """(name, what stands behind the equal sign) if the line sets a variable."""
    found = _SETTING.fullmatch(line)
    return None if found is None else (found["single"] or found["double"] or found["plain"], found["value"])


def setting_value(text: str) -> str:
    """The value of a setting: the quotes around it removed, nothing expanded, no trailing blanks even inside quotes."""
    blanks = " \t\r\v\f"
    quote = text[:1]
    if quote in {"'", '"'}:
        inner, closing, after = text[1:].partition(quote)
        if not closing:
            raise RefusedError(f"the value opens with {quote} and does not close it")
        if after.strip(blanks):
            raise RefusedError(f"text after the closing {quote}; a setting takes no comment on its line")
        text = inner
    text = text.rstrip(blanks)
    # cron looks for quotes a second time, in what is left: "'a'" is a.
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"" else text


def split_time(line: str) -> tuple[str, str]:
    """(expression, rest of the line); the expression is a macro or five fields that Debian's cron reads as we do."""
    if line.startswith("@"):
        macro = re.split("[ \t]", line, maxsplit=1)[0]
        if macro == "@reboot":
            raise RefusedError("@reboot: a fleet has no boot; start it from the machine's init system (a systemd unit)")
        if macro not in MACROS:
            raise RefusedError(f"{macro} is not one of Debian cron's macros {', '.join(MACROS)} (lower case)")
        return macro, line.removeprefix(macro).lstrip(BLANKS)
    if line.startswith("-"):
        raise RefusedError(
            "a leading '-' (do not log) is SUSE's and cronie's, and an error in Debian's cron; remove it"
        )
    found = _FIELDS.match(line)
    if found is None:
        if found := re.match(r"(export|set|declare)\s", line):
            raise RefusedError(f"{found[1]!r} is shell; a setting is NAME=value alone")
        raise RefusedError("expected five time fields and a command, a macro and a command, or NAME=value")
    for kind, text in zip(_KINDS, found.groups(), strict=True):
        _check(kind, text)
    return " ".join(found.groups()), line[found.end() :]


def _check(kind: tuple[str, int, int, tuple[str, ...]], text: str) -> None:
    """Refuse a field outside Debian's grammar, which is smaller than our own."""
    name, low, high, names = kind
    for item in text.split(","):
        found = _ITEM.fullmatch(item)
        if found is None or (found[1] == "*" and found[2]):
            other = next((f"{whose}; " for pattern, whose in _EXTENSIONS if re.search(pattern, item)), "")
            raise RefusedError(f"{name} {text!r}: {other}Debian's cron has *, numbers, names, a-b, lists and steps")
        first, last, step = found.groups()
        if step is not None and (int(step) == 0 or (first != "*" and last is None)):
            raise RefusedError(f"{name} {text!r}: Debian's cron takes steps of 1 or more, after * or a range a-b")
        if first == "*":
            continue
        numbers = [_number(part, low, names) for part in (first, last) if part]
        if not all(low <= number <= high for number in numbers):
            allowed = f"{low}-{high}" + (f" or {names[0]}-{names[-1]}" if names else "")
            raise RefusedError(f"{name} {text!r}: {item!r} is outside {allowed}")
        if numbers[0] > numbers[-1]:
            raise RefusedError(f"{name} {text!r}: a range that runs backwards never matches in Debian's cron")


def _number(text: str, low: int, names: tuple[str, ...]) -> int:
    if text.isdecimal():
        return int(text)
    return low + names.index(text.lower()) if text.lower() in names else -1


def split_user(rest: str) -> tuple[str, str]:
    """The user column and what follows it."""
    user, *after = re.split("[ \t]+", rest, maxsplit=1)
    if not user:
        raise RefusedError("no user and no command")
    if not _USER.fullmatch(user):
        hint = "group and login class are BSD's" if ":" in user else "is this a user's own crontab (no user column)?"
        raise RefusedError(f"the user column holds {user!r}, which is no user; {hint}")
    return user, after[0] if after else ""


def split_percent(rest: str) -> tuple[str, str | None]:
    r"""(command, input), cut at the first bare %. In the command \% means % and \\ means \."""
    parts: list[str] = []
    end = 0
    for found in _PERCENT.finditer(rest):
        parts.append(rest[end : found.start()])
        end = found.end()
        if found[2]:
            return "".join(parts), _input(rest[end:])
        parts.append(found[1] or found[0])
    return "".join(parts) + rest[end:], None


def _input(text: str) -> str:
    r"""The command's input: a bare % is a newline, \% is %, and a last line gets its newline if it has none."""
    lines = re.sub(r"(\\?)%", lambda found: "%" if found[1] else "\n", text)
    last = lines.rstrip("\\")  # cron does not look at backslashes there
    return lines + "\n" if last and not last.endswith("\n") else lines
