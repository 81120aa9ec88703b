"""Crontabs become schedules: what Debian's cron would run, the same way, and an honest report of the rest."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetcron.importers.crontab import CrontabImport, ImportedEntry, has_user_column, parse_crontab
from fleetcron.targets.shell import ShellTarget, run_shell
from fleetcron.triggers import Cron

DATA = Path(__file__).parents[2] / "data" / "crontabs"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def user_tab(text: str, tz: str = "UTC") -> CrontabImport:
    return parse_crontab(text, system=False, source="tab", default_tz=tz)


def system_tab(text: str, source: str = "/etc/cron.d/app") -> CrontabImport:
    return parse_crontab(text, system=True, source=source, default_tz="UTC")


def one(text: str) -> ImportedEntry:
    """The only entry of a user's crontab, nothing refused."""
    result = user_tab(text)
    assert result.refused == []
    (entry,) = result.imported
    return entry


def refusal(text: str, *, system: bool = False) -> str:
    """Why the only line of interest was refused."""
    result = system_tab(text) if system else user_tab(text)
    assert result.imported == []
    (line,) = result.refused
    return line.reason


def data(name: str, folder: str = "/etc/cron.d", *, system: bool = True) -> CrontabImport:
    text = (DATA / name).read_text(encoding="utf-8")
    return parse_crontab(text, system=system, source=f"{folder}/{name}", default_tz="Europe/Berlin")


def exprs(result: CrontabImport) -> list[str]:
    return [entry.trigger.expr for entry in result.imported if isinstance(entry.trigger, Cron)]


# ── Files like those that packages install ───────────────────────────────────────────────────────────────────────────


def test_the_machines_crontab() -> None:
    result = parse_crontab(
        (DATA / "etc-crontab").read_text(), system=True, source="/etc/crontab", default_tz="Europe/Berlin"
    )
    assert result.refused == []
    assert [entry.schedule for entry in result.imported] == [
        "crontab:run-all-jobs.hourly",
        "crontab:run-all-jobs.daily",
        "crontab:run-all-jobs.weekly",
        "crontab:run-all-jobs.monthly",
    ]
    assert [entry.line for entry in result.imported] == [10, 11, 12, 13]
    assert exprs(result) == ["11 * * * *", "35 5 * * *", "57 5 * * 7", "12 6 1 * *"]
    daily = result.imported[1]
    assert (daily.user, daily.env) == ("root", {"SHELL": "/bin/sh", "PATH": PATH})
    assert daily.command == "test -x /usr/sbin/catch-up || { cd / && run-all --report /etc/jobs.daily; }"
    weekly = result.imported[2].trigger
    assert weekly.next(datetime(2024, 6, 5, tzinfo=UTC)) == datetime(2024, 6, 9, 3, 57, tzinfo=UTC)  # a Sunday, Berlin


def test_a_range_with_a_step_and_a_program_named_twice() -> None:
    result = data("meters")
    assert [entry.job for entry in result.imported] == [
        "cron.d/meters:meter-sample-1-1",
        "cron.d/meters:meter-sample-60-2",
    ]
    assert result.imported[0].command == "command -v meter-sample > /dev/null && meter-sample 1 1"
    ticks = result.imported[0].trigger.upcoming(datetime(2024, 6, 5, tzinfo=UTC), 6)
    assert [tick.minute for tick in ticks] == [5, 15, 25, 35, 45, 55]


def test_guards_and_a_sleep_before_the_command() -> None:
    (entry,) = data("renewal").imported
    assert entry.schedule == "cron.d/renewal:renewer-renew"
    assert entry.command == (
        r"test -x /usr/bin/renewer -a \! -d /run/manager && perl -e 'sleep int(rand(43200))' && renewer -q renew"
    )
    (entry,) = data("sessions").imported
    assert (entry.schedule, entry.user) == ("cron.d/sessions:sweep", "root")
    assert entry.command == "[ -x /usr/lib/web/sweep ] && if [ ! -d /run/manager ]; then /usr/lib/web/sweep; fi"
    assert [t.minute for t in entry.trigger.upcoming(datetime(2024, 6, 5, tzinfo=UTC), 2)] == [8, 38]


def test_an_escaped_percent_sign_stays_in_the_command() -> None:
    (entry,) = data("array-check").imported
    assert entry.stdin is None
    assert "[ $(date +%d) -le 7 ]" in entry.command
    assert entry.schedule == "cron.d/array-check:check"


def test_macros_with_a_user_column_and_lines_that_differ_in_one_word() -> None:
    result = data("lists-web")
    assert exprs(result) == ["* * * * *", "3,18,33,48 * * * *", "@hourly", "@daily", "@weekly", "@monthly", "@yearly"]
    assert {entry.user for entry in result.imported} == {"www-data"}
    assert len({entry.job for entry in result.imported}) == 7
    assert result.imported[2].command.endswith("flock -n /run/lists/cron.hourly /usr/share/lists/manage jobs hourly")


def test_at_reboot_is_refused_and_its_neighbours_are_not() -> None:
    result = data("log-watch")
    assert [(line.line, "@reboot" in line.reason) for line in result.refused] == [(4, True)]
    (entry,) = result.imported
    assert (entry.schedule, entry.user) == ("cron.d/log-watch:log-watch", "watcher")
    assert any("no mail is sent to root" in note for note in entry.notes)
    assert any("neither watcher nor root" in note for note in entry.notes)


def test_commands_are_taken_to_the_letter() -> None:
    poll, sweep = data("graphs").imported
    assert poll.command.startswith("php /usr/share/graphs/poll.php 2>&1 >/dev/null | if [ -f")
    assert r"sed -nE 's/^\s*dir\s+(\S.*)$/\1/p' | tail -1); dir=${dir:-/var/cache/graphs}" in sweep.command
    assert (poll.schedule, sweep.schedule) == ("cron.d/graphs:php-poll.php", "cron.d/graphs:find-f-html")


def test_a_users_own_crontab() -> None:
    result = data("spool-alice", "/var/spool/cron/crontabs", system=False)
    assert result.refused == []
    by_name = {entry.schedule: entry for entry in result.imported}
    assert list(by_name) == [
        "crontabs/spool-alice:nightly",
        "crontabs/spool-alice:accounts",
        "crontabs/spool-alice:mail-It-is-ten-bob",
        "crontabs/spool-alice:echo-twenty-three-past-an-even-hour",
        "crontabs/spool-alice:echo-Sunday-4-05",
        "crontabs/spool-alice:cold-start",
        "crontabs/spool-alice:sync-größe",
        "crontabs/spool-alice:sync-größe~2",
    ]
    assert exprs(result)[4:6] == ["5 4 * * SUN", "0 8 1 JAN-MAR,DEC MON-FRI"]
    letter = by_name["crontabs/spool-alice:mail-It-is-ten-bob"]
    assert letter.command == 'mail -s "It is ten" bob'
    assert letter.stdin == "Dear Bob,\n\nwhere are the 5% that you owe us?\n"
    assert letter.env == {
        "SHELL": "/bin/bash",
        "MAILTO": "alice@example.org",
        "GREETING": "  Guten Morgen",
        "DATA": "$HOME/data",
    }
    assert by_name["crontabs/spool-alice:accounts"].command == "$HOME/bin/accounts --month $(date +%Y-%m)"
    twice = [entry for entry in result.imported if entry.job == "crontabs/spool-alice:sync-größe"]
    assert [entry.trigger.next(datetime(2024, 6, 5, tzinfo=UTC)) for entry in twice] == [
        datetime(2024, 6, 5, 7, 30, tzinfo=UTC),
        datetime(2024, 6, 5, 19, 30, tzinfo=UTC),
    ]


def test_what_other_crons_understand_is_refused_line_by_line() -> None:
    result = data("other-crons", system=False)
    assert result.imported == []
    lines = (DATA / "other-crons").read_text().splitlines()
    assert [(refused.line, refused.text) for refused in result.refused] == list(enumerate(lines, 1))
    assert all(refused.reason for refused in result.refused)


# ── The report ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_report_is_json_and_has_the_documented_fields() -> None:
    result = parse_crontab(
        "MAILTO=ops\n0 5 * * * ls\n@reboot x\n", system=False, source="tab", default_tz="Asia/Kolkata"
    )
    assert json.loads(json.dumps(result.report())) == {
        "imported": [
            {
                "line": 2,
                "schedule": "tab:ls",
                "trigger": "0 5 * * * (Asia/Kolkata)",
                "notes": ["output is kept with the run; no mail is sent to ops"],
            }
        ],
        "refused": [{"line": 3, "reason": result.refused[0].reason}],
    }


# ── Lines ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_comments_blank_lines_and_leading_blanks_are_skipped() -> None:
    assert one("\n# a\n \t # b\n\t \n \t 0 1 * * * \t ls # not a comment\n").command == "ls # not a comment"


def test_only_a_newline_ends_a_line() -> None:
    entry = one("0 1 * * * printf a\x0cb\x85c\u2028d\x1ce\n")
    assert entry.command == "printf a\x0cb\x85c\u2028d\x1ce"


def test_crlf_is_read_and_noted() -> None:
    result = user_tab("A='x'\r\n\r\n# c\r\n0 1 * * * ls\r\n")
    assert result.refused == []
    (entry,) = result.imported
    assert (entry.command, entry.env, entry.line) == ("ls", {"A": "x"}, 4)
    assert any("CRLF" in note for note in entry.notes)


def test_a_last_line_without_newline_is_read_and_noted() -> None:
    assert any("no newline" in note for note in one("0 1 * * * ls").notes)
    assert not any("no newline" in note for note in one("0 1 * * * ls\n# end").notes)


def test_a_line_that_is_not_utf8_is_refused_alone() -> None:
    text = b"0 1 * * * echo \xe9\n0 2 * * * echo \xc3\xa9\n".decode(errors="surrogateescape")
    result = user_tab(text)
    assert [(line.line, line.text, "UTF-8" in line.reason) for line in result.refused] == [
        (1, "0 1 * * * echo ?", True)
    ]
    assert [entry.command for entry in result.imported] == ["echo é"]


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert one("\ufeff0 1 * * * ls\n").command == "ls"


def test_an_empty_file_is_no_error() -> None:
    assert user_tab("").report() == {"imported": [], "refused": []}


# ── Settings ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("A=b", "A", "b"),
        ("  A \t=\t b c  ", "A", "b c"),
        ("A = ' b '", "A", " b"),  # cron keeps leading blanks in quotes, and drops trailing ones even there
        ('A="b=c # d"', "A", "b=c # d"),
        ("A=b'c'", "A", "b'c'"),
        ("A='\"b\"'", "A", "b"),  # quotes in quotes go as well
        ("A=''", "A", ""),
        ("A=b # c", "A", "b # c"),
        ("'A B'=c", "A B", "c"),
        ("a-b.c=d", "a-b.c", "d"),
        ("A=é=ü", "A", "é=ü"),
        ("PATH=$HOME/bin:/bin", "PATH", "$HOME/bin:/bin"),
        ("A='~/x'", "A", "~/x"),
    ],
)
def test_settings_are_read_as_cron_reads_them(line: str, name: str, value: str) -> None:
    assert one(f"{line}\n0 1 * * * ls\n").env == {name: value}


def test_a_setting_holds_for_the_lines_below_it() -> None:
    result = user_tab("0 1 * * * a\nX=1\n0 1 * * * b\nX=2\nY=3\n0 1 * * * c\n")
    assert [entry.env for entry in result.imported] == [{}, {"X": "1"}, {"X": "2", "Y": "3"}]


def test_a_value_is_not_expanded_and_the_note_says_so_once() -> None:
    result = user_tab("PATH=$PATH:/x\n0 1 * * * a\n0 1 * * * b\n")
    assert [any("PATH is taken as it stands" in n for n in entry.notes) for entry in result.imported] == [True, False]


def test_an_empty_value_without_quotes_is_read_and_noted() -> None:
    entry = one("MAILTO=\n0 1 * * * a\n")
    assert entry.env == {"MAILTO": ""}
    assert any("MAILTO=''" in note for note in entry.notes)


def test_a_refused_setting_is_mentioned_at_every_line_that_may_miss_it() -> None:
    result = user_tab("0 1 * * * a\nX='open\n0 1 * * * b\n0 1 * * * c\n")
    assert [line.line for line in result.refused] == [2]
    assert [any("line 2, which sets X" in n for n in entry.notes) for entry in result.imported] == [False, True, True]


def test_logname_cannot_be_set() -> None:
    entry = one("LOGNAME=eve\n0 1 * * * a\n")
    assert entry.env == {}
    assert any("LOGNAME" in note for note in entry.notes)


def test_cron_tz_wins_for_the_lines_below_it() -> None:
    result = user_tab(
        "0 9 * * * a\nCRON_TZ=America/New_York\n0 9 * * * a\nCRON_TZ=''\n0 9 * * * a\n", tz="Europe/Berlin"
    )
    start = datetime(2024, 6, 5, tzinfo=UTC)
    assert [entry.trigger.next(start) for entry in result.imported] == [
        datetime(2024, 6, 5, 7, tzinfo=UTC),
        datetime(2024, 6, 5, 13, tzinfo=UTC),
        datetime(2024, 6, 5, 7, tzinfo=UTC),
    ]
    assert [any("CRON_TZ (line 2)" in n for n in entry.notes) for entry in result.imported] == [False, True, False]
    assert len({entry.job for entry in result.imported}) == 1  # the same command: one job, three schedules
    assert all(entry.env == {} for entry in result.imported)


def test_an_unknown_zone_refuses_the_lines_below_it() -> None:
    result = user_tab("CRON_TZ=Mars/Olympus\n0 9 * * * a\nCRON_TZ=UTC\n0 9 * * * b\n")
    assert [(line.line, "line 1" in line.reason, "Mars/Olympus" in line.reason) for line in result.refused] == [
        (2, True, True)
    ]
    assert [entry.line for entry in result.imported] == [4]


def test_tz_is_the_commands_alone() -> None:
    entry = one("TZ=Asia/Tokyo\n0 9 * * * a\n")
    assert entry.env == {"TZ": "Asia/Tokyo"}
    assert entry.trigger.next(datetime(2024, 6, 5, tzinfo=UTC)) == datetime(2024, 6, 5, 9, tzinfo=UTC)
    assert any("TZ reaches the command" in note for note in entry.notes)


def test_random_delay_becomes_jitter() -> None:
    result = user_tab("0 9 * * * a\nRANDOM_DELAY=30\n0 9 * * * b\nRANDOM_DELAY=soon\n0 9 * * * c\n")
    assert [entry.jitter for entry in result.imported] == [None, timedelta(minutes=30), timedelta(minutes=30)]
    assert any("jitter" in note for note in result.imported[1].notes)
    assert [line.line for line in result.refused] == [4]


# ── Times ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("macro", ["yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly"])
def test_macros(macro: str) -> None:
    entry = one(f"@{macro}\t ls\n")
    assert (entry.command, exprs(user_tab(f"@{macro} ls\n"))) == ("ls", [f"@{macro}"])


def test_day_of_month_and_day_of_week_are_either_unless_one_starts_with_a_star() -> None:
    start = datetime(2024, 6, 1, tzinfo=UTC)
    either = one("0 0 13 * 5 a\n").trigger.upcoming(start, 3)
    assert [tick.day for tick in either] == [7, 13, 14]
    both = one("0 0 */13 * 5 a\n").trigger.upcoming(start, 2)  # days 1, 14, 27 that are Fridays
    assert [(tick.month, tick.day) for tick in both] == [(6, 14), (9, 27)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("@reboot x", "@reboot"),
        ("-*/5 * * * * x", "leading '-'"),
        ("0~59 * * * * x", "random"),
        ("0 22-2 * * * x", "runs backwards"),
        ("1/20 * * * * x", "steps"),
        ("*/10 * * * * * x", "sixth time field"),
        ("0 0 30 2 * x", "never comes"),
        ("0 0 * * 8 x", "day of week '8'"),
        ("0 0 * xyz * x", "month 'xyz'"),
        ("* * * * * -q x", "starts with '-'"),
        ("0 0 * * *", "expected"),
        ("@daily", "no command"),
        ("* * * * * %x", "no command"),
        ("export A=b", "'export'"),
        ("0 0 * * * a\0b", "NUL"),
    ],
)
def test_the_reason_names_what_is_wrong(line: str, reason: str) -> None:
    assert reason in refusal(f"{line}\n")


# ── Commands, input, users ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "command", "stdin"),
    [
        ("cat%a%b", "cat", "a\nb\n"),
        ("cat%a%", "cat", "a\n"),
        ("cat%", "cat", ""),
        ("cat%%", "cat", "\n"),
        (r"date +\%d", "date +%d", None),
        (r"cat \%%5\%", "cat %", "5%\n"),
        (r"echo \\ \n \"", r"echo \ \n \"", None),
        (r"cat \\%a\\b", "cat \\", "a\\\\b\n"),
        ("cat%a\\", "cat", "a\\\n"),
        ("cat%\\", "cat", "\\"),
        ("echo \\", "echo \\", None),
    ],
)
def test_percent_signs(text: str, command: str, stdin: str | None) -> None:
    entry = one(f"0 1 * * * {text}\n")
    assert (entry.command, entry.stdin) == (command, stdin)


def test_a_doubled_backslash_is_noted() -> None:
    assert any("\\\\" in note for note in one("0 1 * * * echo a\\\\b\n").notes)


def test_a_command_longer_than_debian_takes_is_noted() -> None:
    long = "echo " + "x" * 1000
    assert any("998" in note for note in one(f"0 1 * * * {long}\n").notes)


def test_the_user_column() -> None:
    (entry,) = system_tab("0 1 * * *  \twww-data \t ls -l\n").imported
    assert (entry.user, entry.command) == ("www-data", "ls -l")
    (entry,) = system_tab("@daily root ls\n").imported
    assert any("not root refuses" in note for note in entry.notes)


@pytest.mark.parametrize("column", ["/usr/bin/x", "*", "a:b", "alice/staff", "-x"])
def test_a_user_column_that_holds_no_user_is_refused(column: str) -> None:
    assert repr(column) in refusal(f"0 1 * * * {column} ls\n", system=True)


def test_a_system_line_without_a_command_is_refused() -> None:
    assert "no command" in refusal("0 1 * * * root\n", system=True)
    assert "no command" in refusal("@daily root\n", system=True)


def test_a_system_crontab_read_as_a_users_is_pointed_out() -> None:
    assert any("--system" in note for note in one("0 1 * * * root ls\n").notes)


def test_which_paths_have_a_user_column() -> None:
    assert has_user_column("/etc/crontab") and has_user_column("/etc/cron.d/x") and has_user_column("cron.d/x")
    assert not has_user_column("/var/spool/cron/crontabs/root") and not has_user_column("crontab")


def test_a_file_that_cron_does_not_read_is_noted() -> None:
    (entry,) = system_tab("0 1 * * * root ls\n", source="/etc/cron.d/app.dpkg-old").imported
    assert any("app.dpkg-old" in note for note in entry.notes)


# ── Names ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def names(text: str) -> list[tuple[str, str]]:
    return [(entry.job, entry.schedule) for entry in user_tab(text).imported]


def test_names_do_not_hang_on_comments_order_times_or_settings() -> None:
    lines = ["0 1 * * * /opt/a x", "0 2 * * * /opt/b", "0 3 * * * /opt/a y"]
    before = dict(zip(lines, names("\n".join(lines) + "\n"), strict=True))
    edited = "# new\nPATH=/bin\n\n" + "\n".join(reversed(lines)) + "\n"
    assert dict(zip(reversed(lines), names(edited), strict=True)) == before
    assert names(edited.replace("0 2 *", "*/5 7 *")) == names(edited)


def test_different_commands_with_the_same_words_get_a_digest_that_hangs_on_the_command_alone() -> None:
    (first, _), (second, _) = names("0 1 * * * run -a\n0 1 * * * run -b\n")
    assert first == "tab:run"
    assert re.fullmatch(r"tab:run-[0-9a-f]{6}", second)
    assert names("X=1\n0 1 * * * run -a\n# c\n5 5 * * * run -b\n") == [(first, first), (second, second)]


def test_the_same_command_in_other_surroundings_is_another_job() -> None:
    jobs = [job for job, _ in names("0 1 * * * run\nX=1\n0 2 * * * run\nX=2\n0 3 * * * run\n0 4 * * * run%in\n")]
    assert len(set(jobs)) == 4


def test_the_same_command_at_several_times_is_one_job() -> None:
    assert names("0 1 * * * run\n0 2 * * * run\n0 3 * * * run\n") == [
        ("tab:run", "tab:run"),
        ("tab:run", "tab:run~2"),
        ("tab:run", "tab:run~3"),
    ]


@pytest.mark.parametrize(
    ("command", "label"),
    [
        ("[ -x /a ] && /usr/bin/b c", "b-c"),
        ("test -e /run/x || SERVICE_MODE=1 /sbin/scrub -A -r", "scrub"),
        ("if [ -x /a ]; then nice -n 10 /usr/sbin/watch; fi", "watch"),
        ("cd /srv/app && ./manage.py clear", "manage.py-clear"),
        ("(umask 077; make -s all) > /dev/null 2>&1", "make-all"),
        ("python3 -c 'import time; time.sleep(5)'; run", "run"),
        ("d=$(date +%F); tar czf /b/$d.tgz /srv", "tar-czf-d.tgz-srv"),
        ("/bin/true", "true"),
        ("X=1", "X-1"),
        ("%", "command"),
        ("echo " + "very-long-" * 20, "echo-very-long-very-long-very-long-very-long-ver"),
    ],
)
def test_labels(command: str, label: str) -> None:
    assert names(f"0 1 * * * {command.replace('%', chr(92) + '%')}\n")[0][0] == f"tab:{label}"


# ── What runs in the end ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_target_has_crons_defaults_and_the_files_settings() -> None:
    assert one("0 1 * * * ls\n").target() == ShellTarget(
        command="ls", shell="/bin/sh", env={"PATH": "/usr/bin:/bin"}, cwd="~"
    )
    (entry,) = system_tab("SHELL=/bin/bash\nPATH=/x\nA=1\n0 1 * * * alice cat%in\n").imported
    assert entry.target() == ShellTarget(
        command="cat", shell="/bin/bash", stdin="in\n", env={"PATH": "/x", "A": "1"}, cwd="~", user="alice"
    )


async def test_an_imported_line_runs_as_cron_would_run_it(tmp_path: Path) -> None:
    entry = one(f'HOME={tmp_path}\nMSG=" hi"\n0 1 * * * echo "$MSG $(pwd) 5\\%"; cat%one%two\n')
    result = await run_shell(entry.target(), env={}, timeout=20)
    assert result.output == f" hi {tmp_path} 5%\none\ntwo\n"


# ── Any text ─────────────────────────────────────────────────────────────────────────────────────────────────────────

PIECES = st.sampled_from(
    [*"*/-,0157 \t\n\r%\\'\"=@#$(){}é\0\ud800", "* * * * * ", "@daily ", "A=", "root ", "mon", "CRON_TZ=", "\x85"]
)


@settings(max_examples=150)
@given(st.lists(PIECES, max_size=40).map("".join), st.booleans())
def test_no_text_raises_and_every_line_has_one_fate(text: str, system: bool) -> None:
    result = parse_crontab(text, system=system, source="any", default_tz="UTC")
    lines = [entry.line for entry in result.imported] + [refused.line for refused in result.refused]
    assert len(set(lines)) == len(lines)
    assert all(1 <= line <= text.count("\n") + 1 for line in lines)
    schedules = [entry.schedule for entry in result.imported]
    assert len(set(schedules)) == len(schedules)
    for entry in result.imported:
        assert ShellTarget.from_dict(entry.target().to_dict()) == entry.target()
    json.dumps(result.report()).encode()
