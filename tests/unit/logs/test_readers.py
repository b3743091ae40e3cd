"""Reading the log back: what was written is what is shown, also across rotations."""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from hermes_agent.app.cli import home
from hermes_agent.core.errors import UserError
from hermes_agent.core.log_context import log_context
from hermes_agent.logs.entries import LogEntry, LogFilter, as_text, from_journal, from_line
from hermes_agent.logs.handlers import RotatingFile
from hermes_agent.logs.readers import JournalReader, LogFile, choose_reader, parse_since
from hermes_agent.service.daemon_state import DaemonState, write_state

Log = Callable[..., logging.Logger]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """Make a logger whose file is `tmp_path/logs/agent.log`."""
    made: list[tuple[logging.Logger, RotatingFile]] = []

    def make(max_bytes: int = 0, backups: int = 3) -> logging.Logger:
        logger = logging.Logger("hermes_agent.test")
        handler = RotatingFile(tmp_path / "logs" / "agent.log", max_bytes=max_bytes, backups=backups)
        logger.addHandler(handler)
        made.append((logger, handler))
        return logger

    yield make
    for _, handler in made:
        handler.close()


def messages(entries: Iterator[LogEntry] | list[LogEntry]) -> list[str]:
    return [entry.message for entry in entries]


def test_a_record_is_read_as_it_was_written(log: Log, tmp_path: Path) -> None:
    logger = log()
    with log_context(session="s1", turn="t 1", plugin='we"ird\\'):
        try:
            raise ValueError("no")
        except ValueError:
            logger.exception("failed: 2=2\nsecond line")
    (entry,) = LogFile(tmp_path / "logs" / "agent.log").recent(9, LogFilter())
    assert (entry.level, entry.logger) == ("ERROR", "hermes_agent.test")
    assert dict(entry.fields) == {"session": "s1", "turn": "t 1", "plugin": 'we"ird\\'}
    assert entry.message.startswith("failed: 2=2\nsecond line\nTraceback (most recent call last):\n  File ")
    assert as_text(entry) + "\n" == (tmp_path / "logs" / "agent.log").read_text()


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        (LogFilter(), ["a", "b", "c\nmore", "d"]),
        (LogFilter(level="INFO"), ["b", "c\nmore", "d"]),
        (LogFilter(level="WARNING"), ["c\nmore", "d"]),
        (LogFilter(session="s1"), ["b", "c\nmore"]),
        (LogFilter(session="s1", level="ERROR"), ["c\nmore"]),
        (LogFilter(plugin="calculator"), ["c\nmore"]),
        (LogFilter(plugin="nobody"), []),
    ],
)
def test_records_are_filtered_with_their_continued_lines(
    log: Log, tmp_path: Path, wanted: LogFilter, shown: list[str]
) -> None:
    logger = log()
    logger.debug("a")
    with log_context(session="s1"):
        logger.info("b")
        with log_context(plugin="calculator"):
            logger.error("c\nmore")
    logger.warning("d")
    assert messages(LogFile(tmp_path / "logs" / "agent.log").recent(9, wanted)) == shown


def test_the_last_records_come_from_older_files_when_the_newest_has_too_few(log: Log, tmp_path: Path) -> None:
    logger = log(max_bytes=200, backups=9)
    for n in range(12):
        logger.info("record %02d", n)
    assert (tmp_path / "logs" / "agent.log.3").exists()
    file = LogFile(tmp_path / "logs" / "agent.log")
    assert messages(file.recent(7, LogFilter())) == [f"record {n:02d}" for n in range(5, 12)]
    assert messages(LogFile(file.path).recent(99, LogFilter())) == [f"record {n:02d}" for n in range(12)]
    assert LogFile(file.path).recent(0, LogFilter()) == []


def test_following_survives_one_rotation_and_several_between_two_looks(log: Log, tmp_path: Path) -> None:
    logger = log(max_bytes=200, backups=9)
    logger.info("record 00")
    steps = iter([0, 1, 1, 8, 0, 2, 0, 0])
    written = iter(range(1, 100))

    def wait() -> bool:
        count = next(steps, None)
        for _ in range(count or 0):
            logger.info("record %02d", next(written))
        return count is not None

    file = LogFile(tmp_path / "logs" / "agent.log")
    seen = messages(file.recent(5, LogFilter())) + messages(file.follow(LogFilter(), wait))
    assert seen == [f"record {n:02d}" for n in range(13)]


def test_following_begins_before_there_is_a_file_and_filters(log: Log, tmp_path: Path) -> None:
    logger = log()
    steps: Iterator[Callable[[], None]] = iter(
        [lambda: None, lambda: logger.info("first"), lambda: logger.error("second\nand more"), lambda: None]
    )

    def wait() -> bool:
        step = next(steps, None)
        if step is not None:
            step()
        return step is not None

    file = LogFile(tmp_path / "logs" / "agent.log")
    assert file.recent(5, LogFilter()) == []
    assert [as_text(e)[-8:] for e in file.follow(LogFilter(level="ERROR"), wait)] == [": second", "and more"]


def test_a_file_that_was_removed_by_hand_does_not_bring_old_records_back(log: Log, tmp_path: Path) -> None:
    logger = log(max_bytes=200, backups=9)
    for n in range(5):
        logger.info("record %02d", n)
    path = tmp_path / "logs" / "agent.log"
    os.utime(path, (2e9, 2e9))  # the last to be written, beyond the clock's resolution
    steps = iter([path.unlink, lambda: None, lambda: logger.info("new") or os.utime(path, (3e9, 3e9)), lambda: None])

    def wait() -> bool:
        step = next(steps, None)
        if step is not None:
            step()
        return step is not None

    file = LogFile(path)
    assert messages(file.recent(1, LogFilter())) == ["record 04"]
    assert messages(file.follow(LogFilter(), wait)) == ["new"]


def test_a_follower_starts_with_the_rotated_files_when_the_newest_is_missing(log: Log, tmp_path: Path) -> None:
    logger = log(max_bytes=200, backups=9)
    for n in range(5):
        logger.info("record %02d", n)
    path = tmp_path / "logs" / "agent.log"
    path.unlink()
    last = path.with_name("agent.log.1").read_text().splitlines()[-1]
    written = iter([True, True])

    def wait() -> bool:
        if (go_on := next(written, False)) and not path.exists():
            logger.info("new")
        return go_on

    file = LogFile(path)
    assert [as_text(entry) for entry in file.recent(1, LogFilter())] == [last]
    assert messages(file.follow(LogFilter(), wait)) == ["new"]


def test_a_line_is_shown_when_it_is_complete_and_a_truncated_file_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    head = "2026-01-01 00:00:00.000+00:00 INFO x: "
    path.write_text(f"{head}one, and a long line\n{head}tw")
    steps: Iterator[str] = iter(["o\n", "", f"!{head}new\n"])

    def wait() -> bool:
        text = next(steps, None)
        if text is None:
            return False
        with open(path, "w" if text.startswith("!") else "a") as out:
            out.write(text.removeprefix("!"))
        return True

    file = LogFile(path)
    assert messages(file.recent(5, LogFilter())) == ["one, and a long line"]
    assert messages(file.follow(LogFilter(), wait)) == ["two", "new"]


def test_a_follower_in_another_thread_sees_every_record_of_a_file_that_rotates(log: Log, tmp_path: Path) -> None:
    logger = log(max_bytes=3000, backups=100)
    file = LogFile(tmp_path / "logs" / "agent.log")
    file.recent(0, LogFilter())
    seen: list[str] = []
    done = threading.Event()
    writing_ended = threading.Event()

    def read() -> None:
        def wait() -> bool:
            return not writing_ended.wait(0.002) or len(seen) < 2000

        for entry in file.follow(LogFilter(), wait):
            seen.append(entry.message)
        done.set()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    for n in range(2000):
        logger.info("%d", n)
    writing_ended.set()
    assert done.wait(60)
    assert seen == [str(n) for n in range(2000)]


def test_a_message_that_looks_like_a_record_stays_part_of_its_own(log: Log, tmp_path: Path) -> None:
    log().info("real\n2026-01-01 00:00:00.000+00:00 ERROR root: forged session=s9")
    assert LogFile(tmp_path / "logs" / "agent.log").recent(5, LogFilter(level="ERROR")) == []


def test_a_structured_entry_of_the_journal_is_read() -> None:
    entry = from_journal(
        {
            "__REALTIME_TIMESTAMP": "1500000",
            "__CURSOR": "c1",
            "MESSAGE": "slow",
            "PRIORITY": "4",
            "LOGGER": "hermes_agent.tools",
            "HERMES_SESSION": "s1",
            "HERMES_PLUGIN": "p",
            "_TRANSPORT": "journal",
        }
    )
    assert entry == LogEntry(
        1.5, "WARNING", "hermes_agent.tools", "slow", {"session": "s1", "plugin": "p"}, cursor="c1"
    )


def test_a_prefixed_line_of_the_journal_is_read_with_its_fields() -> None:
    line = {"__REALTIME_TIMESTAMP": "0", "PRIORITY": "3", "SYSLOG_IDENTIFIER": "hermes", "_TRANSPORT": "stdout"}
    head = from_journal({**line, "MESSAGE": "hermes_agent.tools: failed session=s1 tool=terminal"})
    more = from_journal({**line, "MESSAGE": "    Traceback"})
    assert (head.level, head.logger, head.message) == ("ERROR", "hermes_agent.tools", "failed")
    assert dict(head.fields) == {"session": "s1", "tool": "terminal"}
    assert (more.continued, more.message) == (True, "Traceback")


def test_what_the_journal_gives_as_bytes_or_repeated_is_text() -> None:
    entry = from_journal({"MESSAGE": [104, 105, 255], "SYSLOG_IDENTIFIER": ["a", "b"], "__REALTIME_TIMESTAMP": "0"})
    assert (entry.message, entry.logger, entry.level) == ("hi\\xff", "a", "INFO")


def test_a_line_that_is_no_record_counts_as_continued() -> None:
    assert from_line("Killed") == LogEntry(0.0, "", "", "Killed", continued=True)


NOW = datetime(2026, 11, 21, 12, 0, 0).timestamp()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90s", NOW - 90),
        ("10m", NOW - 600),
        ("10 min ago", NOW - 600),
        ("2h", NOW - 7200),
        ("3d", NOW - 3 * 86400),
        ("1w", NOW - 7 * 86400),
        ("today", NOW - 12 * 3600),
        ("yesterday", NOW - 36 * 3600),
        ("2026-11-20", NOW - 36 * 3600),
        ("2026-11-21 11:59", NOW - 60),
        ("1970-01-01T00:00:10+00:00", 10.0),
    ],
)
def test_since_understands_dates_and_how_long_ago(text: str, moment: float) -> None:
    assert parse_since(text, NOW) == moment


def test_since_refuses_what_is_no_time() -> None:
    with pytest.raises(UserError) as caught:
        parse_since("last tuesday")
    assert caught.value.exit_status == 2
    assert "'last tuesday' is no time" in str(caught.value)


def test_the_daemons_record_decides_between_journal_and_file(tmp_path: Path) -> None:
    assert isinstance(choose_reader(tmp_path), LogFile)
    write_state(tmp_path, DaemonState(1, 0, "file", "h.service"))
    assert isinstance(choose_reader(tmp_path), LogFile)
    assert choose_reader(tmp_path, source="journal") == JournalReader("h.service", "system")
    write_state(tmp_path, DaemonState(1, 0, "journal", "h.service", "user", "id"))
    assert choose_reader(tmp_path) == JournalReader("h.service", "user", "id")
    assert isinstance(choose_reader(tmp_path, source="file"), LogFile)
    assert choose_reader(tmp_path, unit="other") == JournalReader("other.service", None)
    write_state(tmp_path, DaemonState(1, 0, "journal", None, "system", "id"))
    assert choose_reader(tmp_path) == JournalReader(None, "system", "id")


def test_the_journal_of_an_unknown_unit_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="hermes logs --unit hermes-agent"):
        choose_reader(tmp_path, source="journal")


def run_logs(*argv: str) -> int:
    parser = argparse.ArgumentParser()
    home.add_logs(parser.add_subparsers())
    args = parser.parse_args(["logs", *argv])
    status: int = args.run(args)
    return status


def test_hermes_logs_shows_text_or_json(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    logger = log()
    with log_context(session="s1"):
        logger.warning("slow\ntool")
    logger.info("fine")
    assert run_logs() == 0
    assert re.sub(r"\S+ \S+ ([A-Z]{4,})", r"TIME \1", capsys.readouterr().out) == (
        "TIME WARNING hermes_agent.test: slow session=s1\n    tool\nTIME INFO hermes_agent.test: fine\n"
    )
    assert run_logs("--json", "--level", "warn", "--since", "1h") == 0
    value = json.loads(capsys.readouterr().out)
    assert value.pop("time")
    assert value == {"level": "WARNING", "logger": "hermes_agent.test", "message": "slow\ntool", "session": "s1"}


def test_hermes_logs_says_that_there_is_nothing_yet_or_that_nothing_matches(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    assert run_logs() == 0
    assert f"Nothing is logged yet: there is no {tmp_path}/logs/agent.log" in capsys.readouterr().err
    log().info("hello")
    assert run_logs("--session", "s2") == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"No record in {tmp_path}/logs/agent.log matches.\n")


def test_hermes_logs_without_journalctl_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    with pytest.raises(UserError, match="there is no journalctl"):
        run_logs("--unit", "hermes-agent")


@pytest.mark.parametrize("argv", [("-n", "few"), ("--level", "loud"), ("-n", "-1")])
def test_hermes_logs_refuses_wrong_options_with_status_2(
    argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        run_logs(*argv)
    assert caught.value.code == 2
