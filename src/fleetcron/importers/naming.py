"""Names for imported jobs: readable, unique in their file, and indifferent to line numbers.

A name is `<origin>:<label>`, made from the file's name and the command alone:
* the origin is the file: "crontab", "cron.d/sysstat", "crontabs/alice" (a spool file);
* the label is the first simple command that is not a guard (`test -x …`, `command -v …`, `cd …`, an assignment), with
  its operands; folders, options and redirections are left out: "run-parts-cron.hourly", "debian-sa1-1-1".

So editing comments, order, times or settings renames nothing. When two *different* commands of a file come to the same
label, the first keeps it and the others get six hex digits of a digest of user, command and input. The same command on
several lines is one job with several schedules: `name`, `name~2`, … in file order. A second import of an edited file
lands on the same names, except for commands that were themselves rewritten or removed.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import PurePosixPath

_LABEL = 48  # characters; more is not read
_REDIRECTION = re.compile(r"[0-9]*[<>]")
_TOKEN = re.compile(
    r"""[0-9]*[<>]+&?\s*[^\s;|&(){}]*    # a redirection with its target
      | && | \|\| | [;|&(){}\n]
      | (?: \\.
          | "(?:[^"\\]|\\.)*" | '[^']*' | `[^`]*`
          | \$\{[^{}]*\}
          | \$\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)    # a substitution, with parentheses two deep
          | [^\s;|&(){}'"`<>\\]
        )+                               # a word
      | \S""",
    re.VERBOSE | re.DOTALL,
)
_SEPARATORS = frozenset({"&&", "||", ";", "|", "&", "(", ")", "{", "}", "\n"})
_KEYWORDS = frozenset({"if", "then", "elif", "else", "fi", "while", "until", "do", "done", "!", "time"})
_WRAPPERS = frozenset({"exec", "nice", "ionice", "nohup", "chronic", "setsid"})
_GUARDS = frozenset({"test", "[", "[[", "command", "cd", "sleep", "set", "umask", ".", ":", "true", "for", "case"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SLEEPS = re.compile(r"""["']?\s*(?:import \w+;\s*)?(?:time\.)?sleep\b""")  # perl -e 'sleep int(rand(3600))'
_UNCLEAR = re.compile(r"[^\w.@+]+")


class Namer:
    """Hands out the names of one file's commands, in file order."""

    def __init__(self, source: str) -> None:
        self._origin = origin(source)
        self._owners: dict[str, tuple[object, ...]] = {}
        self._counts: dict[str, int] = {}

    def name(self, command: str, user: str | None, stdin: str | None, env: dict[str, str]) -> tuple[str, str]:
        """(job, schedule) for the next line. Two lines share a job when they do the same with the same settings."""
        identity = (command, user, stdin, *sorted(env.items()))
        base = f"{self._origin}:{label(command)}"
        # The settings enter the digest only where they are the difference, so that editing one does not rename jobs.
        choices = (base, f"{base}-{_digest(command, user, stdin)}", f"{base}-{_digest(*identity)}")
        job = next((name for name in choices if self._owners.setdefault(name, identity) == identity), choices[-1])
        count = self._counts[job] = self._counts.get(job, 0) + 1
        return job, job if count == 1 else f"{job}~{count}"


def origin(source: str) -> str:
    """What stands for the file in names: its last part, with the folder for cron.d and the spool."""
    path = PurePosixPath(source)
    name = _clear(path.name) or "crontab"
    return f"{path.parent.name}/{name}" if path.parent.name in {"cron.d", "crontabs"} else name


def label(command: str) -> str:
    """The words of the first simple command that does something. Never empty."""
    for program, *operands in _simple_commands(command):
        if program in _GUARDS or any(_SLEEPS.match(word) for word in operands):
            continue
        operands = [text for word in operands if (text := word.strip("'\"")) and text[0] not in "-+$`"]
        words = [_clear(_base(word)) for word in (program.strip("'\""), *operands)]
        if text := _short("-".join(word for word in words if word)):
            return text
    return _short(_clear(command)) or "command"


def _simple_commands(command: str) -> list[list[str]]:
    """The command cut at operators, without redirections, keywords, assignments, wrappers. Not a shell parser."""
    found: list[list[str]] = [[]]
    for token in _TOKEN.findall(command):
        if token in _SEPARATORS:
            found.append([])
        elif not _REDIRECTION.match(token) and (found[-1] or not _is_prefix(token)):
            found[-1].append(token)
    return [words for words in found if words]


def _is_prefix(token: str) -> bool:
    """Does the program's name come after this word?"""
    return token in _KEYWORDS | _WRAPPERS or token[0] == "-" or token.isdecimal() or bool(_ASSIGNMENT.match(token))


def _base(word: str) -> str:
    return word if " " in word else word.rstrip("/").rsplit("/", 1)[-1]


def _clear(text: str) -> str:
    return _UNCLEAR.sub("-", text).strip("-.")


def _short(text: str) -> str:
    return text if len(text) <= _LABEL else text[:_LABEL].rstrip("-.")


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:6]
