"""Where the log goes, what a line looks like, and that no secret gets into it."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hermes_agent.core.log_context import log_context, log_fields
from hermes_agent.core.redaction import redactor
from hermes_agent.logs.handlers import JournalHandler, RotatingFile, stderr_is_journal
from hermes_agent.logs.setup import configure_logging, release_logging

SECRET = "correct-horse-battery-staple"
STAMP = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d ")


class Settings(NamedTuple):
    """The block `logging`."""

    level: str = "INFO"
    max_size_mb: float = 5
    backup_count: int = 3


@pytest.fixture(autouse=True)
def handlers_are_taken_away_again() -> Iterator[None]:
    root = logging.getLogger()
    level = root.level
    redactor.learn([SECRET])
    yield
    release_logging()
    root.setLevel(level)


def lines(path: Path) -> list[str]:
    return [STAMP.sub("TIME ", line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_in_a_terminal_the_log_is_in_files_and_stderr_stays_clean(tmp_path: Path) -> None:
    stderr = io.StringIO()
    setup = configure_logging(Settings(), home=tmp_path, mode="terminal", environ={}, stderr=stderr)
    assert list(tmp_path.iterdir()) == []
    logger = logging.getLogger("hermes_agent.agent")
    logger.debug("not kept")
    logger.info("turn %s", 1)
    logger.warning("slow")
    assert setup.log == "file"
    assert lines(tmp_path / "logs" / "agent.log") == [
        "TIME INFO hermes_agent.agent: turn 1",
        "TIME WARNING hermes_agent.agent: slow",
    ]
    assert lines(tmp_path / "logs" / "errors.log") == ["TIME WARNING hermes_agent.agent: slow"]
    assert stderr.getvalue() == ""
    assert sorted(p.name for p in (tmp_path / "logs").iterdir()) == ["agent.log", "errors.log"]
    assert (tmp_path / "logs" / "agent.log").stat().st_mode & 0o777 == 0o600


def test_the_daemon_writes_each_line_to_stderr_with_its_priority(tmp_path: Path) -> None:
    stderr = io.StringIO()
    configure_logging(Settings("DEBUG"), home=tmp_path, mode="daemon", environ={}, stderr=stderr)
    logger = logging.getLogger("hermes_agent.server")
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
        logger.log(level, "one\ntwo")
    assert stderr.getvalue().splitlines() == [
        text for n in (7, 6, 4, 3, 2) for text in (f"<{n}>hermes_agent.server: one", f"<{n}>    two")
    ]


@pytest.mark.parametrize(
    ("level", "line"),
    [("INFO", "TIME INFO serving: OSError: no luck\r\n"), ("DEBUG", "TIME INFO hermes_agent.server: serving\r\n")],
)
def test_an_operator_who_starts_the_daemon_at_a_terminal_reads_short_lines_and_whole_ones_with_verbose(
    tmp_path: Path, level: str, line: str
) -> None:
    ours, theirs = pty.openpty()
    with open(theirs, "w") as stderr:
        configure_logging(Settings(), home=tmp_path, mode="daemon", level_name=level, environ={}, stderr=stderr)
        logging.getLogger("hermes_agent.server").info("serving", exc_info=OSError("no luck"))
        seen = os.read(ours, 4096).decode()
        release_logging()
    os.close(ours)
    seen = re.sub(r"^\d\d:\d\d:\d\d ", "TIME ", STAMP.sub("TIME ", seen))
    assert seen.splitlines(keepends=True)[0] == line
    assert ("no luck" in seen) and (len(seen.splitlines()) == 1) is (level == "INFO")
    assert "OSError: no luck" in (tmp_path / "logs" / "agent.log").read_text()


def test_the_gateway_log_of_the_daemon_has_plugins_and_front_doors_only(tmp_path: Path) -> None:
    configure_logging(Settings(), home=tmp_path, mode="daemon", environ={}, stderr=io.StringIO())
    logging.getLogger("hermes_plugins.weather").info("sunny")
    logging.getLogger("gateway").info("up")
    logging.getLogger("hermes_pluginsx").info("another")
    logging.getLogger("hermes_agent.agent").info("turn")
    assert lines(tmp_path / "logs" / "gateway.log") == [
        "TIME INFO hermes_plugins.weather: sunny",
        "TIME INFO gateway: up",
    ]


def test_context_fields_follow_the_message_and_nest(tmp_path: Path) -> None:
    configure_logging(Settings(), home=tmp_path, mode="terminal", environ={}, stderr=io.StringIO())
    logger = logging.getLogger("hermes_agent.tools")
    with log_context(session="s1", turn="t1"):
        with log_context(plugin="my plugin", tool="calculate"):
            logger.info("ran", extra={"HERMES_EVENT": "tool_finished"})
        with log_context(turn=""):
            logger.info("between")
    logger.info("after")
    assert lines(tmp_path / "logs" / "agent.log") == [
        'TIME INFO hermes_agent.tools: ran session=s1 turn=t1 plugin="my plugin" tool=calculate event=tool_finished',
        "TIME INFO hermes_agent.tools: between session=s1",
        "TIME INFO hermes_agent.tools: after",
    ]


async def test_context_fields_go_along_into_tasks_and_not_between_them() -> None:
    async def turn(name: str, seen: dict[str, dict[str, str]], barrier: asyncio.Barrier) -> None:
        with log_context(turn=name):
            await barrier.wait()
            seen[name] = log_fields()

    async def run() -> dict[str, dict[str, str]]:
        seen: dict[str, dict[str, str]] = {}
        barrier = asyncio.Barrier(2)
        with log_context(session="s"):
            await asyncio.wait_for(asyncio.gather(turn("a", seen, barrier), turn("b", seen, barrier)), 5)
        return seen

    assert await run() == {"a": {"session": "s", "turn": "a"}, "b": {"session": "s", "turn": "b"}}


async def test_a_generator_that_another_task_closes_does_not_fail() -> None:
    async def events() -> Any:
        with log_context(turn="t"):
            yield 1
            yield 2

    async def run() -> dict[str, str]:
        stream = events()
        await asyncio.create_task(anext(stream))
        await asyncio.create_task(stream.aclose())
        return log_fields()

    assert await run() == {}


def test_no_secret_gets_into_any_sink_whether_in_message_arguments_traceback_or_fields(tmp_path: Path) -> None:
    stderr = io.StringIO()
    configure_logging(Settings(), home=tmp_path, mode="daemon", environ={"HERMES_PLUGINS_DEBUG": "1"}, stderr=stderr)
    sent: list[str] = []
    logger = logging.getLogger("hermes_plugins.leaky")
    logger.addHandler(
        journal := JournalHandler(lambda message, **fields: sent.extend(map(str, [message, *fields.values()])))
    )
    try:
        try:
            raise ValueError(f"401 for {SECRET}") from KeyError(SECRET)
        except ValueError:
            with log_context(session=SECRET):
                logger.exception("failed with %s and Bearer abcdefghijklmnopqrstuvwx", {"key": SECRET}, stack_info=True)
    finally:
        logger.removeHandler(journal)
    texts = [stderr.getvalue(), *sent, *(p.read_text() for p in (tmp_path / "logs").iterdir())]
    assert len(texts) > 10
    for text in texts:
        assert SECRET not in text
        assert "abcdefghijklmnopqrstuvwx" not in text
    assert any("ValueError: 401 for [redacted]" in text for text in texts)


def test_a_record_whose_arguments_do_not_fit_is_kept_and_redacted(tmp_path: Path) -> None:
    handler = RotatingFile(tmp_path / "x.log", max_bytes=0, backups=0)
    handler.handle(logging.LogRecord("plugin", logging.INFO, "p.py", 1, "%d of %d", (SECRET,), None))
    handler.close()
    assert lines(tmp_path / "x.log") == [
        "TIME INFO plugin: %d of %d (logged with arguments that do not fit: ('[redacted]',),"
        " %d format: a real number is required, not str)"
    ]


def test_a_home_that_cannot_be_written_is_told_once_and_the_program_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").write_text("a file where the directory should be")
    configure_logging(Settings(), home=tmp_path, mode="terminal", environ={}, stderr=io.StringIO())
    for _ in range(3):
        logging.getLogger("hermes_agent.x").info("hello")
    assert capsys.readouterr().err.count(f"cannot write the log ({tmp_path}/logs/agent.log") == 1


def test_a_message_with_line_breaks_cannot_pass_for_another_record(tmp_path: Path) -> None:
    handler = RotatingFile(tmp_path / "x.log", max_bytes=0, backups=0)
    message = "a\n2026-01-01 00:00:00.000+00:00 INFO root: forged \udcff\x1b[2J\r\n\r!"
    handler.handle(logging.LogRecord("plugin", logging.INFO, "p.py", 1, message, (), None))
    handler.close()
    assert lines(tmp_path / "x.log") == [
        "TIME INFO plugin: a",
        "    2026-01-01 00:00:00.000+00:00 INFO root: forged \\udcff\\x1b[2J",
        "    \\x0d!",
    ]


def test_plugin_debug_shows_the_plugin_loggers_on_stderr_and_leaves_the_files_alone(tmp_path: Path) -> None:
    stderr = io.StringIO()
    configure_logging(Settings(), home=tmp_path, mode="terminal", environ={"HERMES_PLUGINS_DEBUG": "1"}, stderr=stderr)
    logging.getLogger("hermes_agent.plugins.loader").debug("skipped: not enabled in config")
    logging.getLogger("hermes_plugins.weather").warning("no key")
    logging.getLogger("hermes_agent.agent").warning("not a plugin's")
    assert stderr.getvalue() == "[plugins] DEBUG skipped: not enabled in config\n[plugins] WARNING no key\n"
    assert "skipped" not in (tmp_path / "logs" / "agent.log").read_text()
    release_logging()
    assert logging.getLogger("hermes_plugins").getEffectiveLevel() == logging.getLogger().level


@pytest.mark.parametrize("value", ["", "0", "false", "off"])
def test_plugin_debug_that_is_off_adds_nothing(tmp_path: Path, value: str) -> None:
    stderr = io.StringIO()
    configure_logging(
        Settings(), home=tmp_path, mode="terminal", environ={"HERMES_PLUGINS_DEBUG": value}, stderr=stderr
    )
    logging.getLogger("hermes_plugins.weather").error("x")
    assert stderr.getvalue() == ""


def test_other_libraries_are_heard_from_warning_up(tmp_path: Path) -> None:
    configure_logging(Settings("DEBUG"), home=tmp_path, mode="terminal", environ={}, stderr=io.StringIO())
    for name in ("aiohttp.access", "openai._base_client", "uvicorn.error"):
        logging.getLogger(name).info("GET https://host/?key=1")
        logging.getLogger(name).warning("%s is unwell", name)
    assert [line.rpartition(": ")[2] for line in lines(tmp_path / "logs" / "agent.log")] == [
        "aiohttp.access is unwell",
        "openai._base_client is unwell",
        "uvicorn.error is unwell",
    ]


def test_a_second_configuration_replaces_the_first(tmp_path: Path) -> None:
    configure_logging(Settings(), home=tmp_path / "a", mode="terminal", environ={}, stderr=io.StringIO())
    configure_logging(Settings(), home=tmp_path / "b", mode="terminal", environ={}, stderr=io.StringIO())
    logging.getLogger("hermes_agent.x").info("once")
    assert lines(tmp_path / "b" / "logs" / "agent.log") == ["TIME INFO hermes_agent.x: once"]
    assert not (tmp_path / "a").exists()


def test_an_error_in_a_thread_of_the_daemon_is_logged_without_secrets(tmp_path: Path) -> None:
    stderr = io.StringIO()
    configure_logging(Settings(), home=tmp_path, mode="daemon", environ={}, stderr=stderr)

    def work() -> None:
        raise RuntimeError(f"no luck with {SECRET}")

    thread = threading.Thread(target=work, name="plugin-thread")
    thread.start()
    thread.join(5)
    assert "thread plugin-thread ended with an error" in stderr.getvalue()
    assert "RuntimeError: no luck with [redacted]" in stderr.getvalue()


def test_only_the_very_stream_that_journal_stream_names_counts_as_the_journal(tmp_path: Path) -> None:
    with open(tmp_path / "stream", "w") as stream:
        status = os.fstat(stream.fileno())
        name = f"{status.st_dev}:{status.st_ino}"
        assert stderr_is_journal({"JOURNAL_STREAM": name}, stream.fileno())
        assert not stderr_is_journal({"JOURNAL_STREAM": "8:1"}, stream.fileno())
        assert not stderr_is_journal({}, stream.fileno())
        assert not stderr_is_journal({"JOURNAL_STREAM": name}, -1)


def test_under_the_journal_no_file_is_written(tmp_path: Path) -> None:
    with open(tmp_path / "stream", "w") as stream:
        status = os.fstat(stream.fileno())
        environ = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        setup = configure_logging(Settings(), home=tmp_path / "home", mode="daemon", environ=environ, stderr=stream)
        assert setup.log == "journal"
        logging.getLogger("hermes_agent.x").info("hello")
        release_logging()
    assert not (tmp_path / "home").exists()


def test_a_journal_entry_has_the_fields_of_the_record() -> None:
    sent: list[dict[str, Any]] = []
    handler = JournalHandler(lambda message, **fields: sent.append({"MESSAGE": message, **fields}))
    logger = logging.getLogger("hermes_agent.tools")
    logger.addHandler(handler)
    try:
        with log_context(session="s1", plugin="calculator"):
            logger.warning("slow\ntool", extra={"HERMES_EVENT": "slow"})
    finally:
        logger.removeHandler(handler)
    (entry,) = sent
    assert entry.pop("CODE_FILE") == __file__
    assert isinstance(entry.pop("CODE_LINE"), int)
    assert entry == {
        "MESSAGE": "slow\ntool",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "hermes-agent",
        "LOGGER": "hermes_agent.tools",
        "THREAD_NAME": threading.current_thread().name,
        "CODE_FUNC": "test_a_journal_entry_has_the_fields_of_the_record",
        "HERMES_SESSION": "s1",
        "HERMES_PLUGIN": "calculator",
        "HERMES_EVENT": "slow",
    }


def test_a_full_file_becomes_a_numbered_one_and_the_oldest_goes(tmp_path: Path) -> None:
    configure_logging(
        Settings(max_size_mb=300 / 1024 / 1024, backup_count=2),
        home=tmp_path,
        mode="terminal",
        environ={},
        stderr=io.StringIO(),
    )
    for number in range(40):
        logging.getLogger("hermes_agent.x").info("record %02d", number)
    files = sorted((tmp_path / "logs").iterdir())
    assert [p.name for p in files] == ["agent.log", "agent.log.1", "agent.log.2"]
    kept = [line[-2:] for p in reversed(files) for line in lines(p)]
    assert kept == [f"{n:02d}" for n in range(40 - len(kept), 40)]
    assert all(p.stat().st_size <= 300 and p.stat().st_mode & 0o777 == 0o600 for p in files)


WRITER = """
import logging, sys
from pathlib import Path
from hermes_agent.logs.handlers import RotatingFile
logger = logging.getLogger("w")
logger.setLevel(logging.INFO)
logger.addHandler(RotatingFile(Path(sys.argv[1]), max_bytes=20_000, backups=50))
for n in range(2000):
    logger.info("%s-%04d", sys.argv[2], n)
"""


def test_processes_that_write_one_file_lose_no_record_when_it_rotates(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    path = tmp_path / "agent.log"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], env=env) for name in ("a", "b", "c")]
    assert [w.wait(60) for w in writers] == [0, 0, 0]
    written = sorted(line.rpartition(" ")[2] for p in tmp_path.iterdir() for line in p.read_text().splitlines())
    assert written == [f"{name}-{n:04d}" for name in "abc" for n in range(2000)]


def test_without_backups_the_file_starts_anew(tmp_path: Path) -> None:
    logger = logging.getLogger("tests.rotating")
    handler = RotatingFile(tmp_path / "x.log", max_bytes=100, backups=0)
    logger.addHandler(handler)
    try:
        for n in range(5):
            logger.warning("record %d", n)
    finally:
        logger.removeHandler(handler)
        handler.close()
    assert [p.name for p in tmp_path.iterdir()] == ["x.log"]
    assert lines(tmp_path / "x.log")[-1].endswith("record 4")
