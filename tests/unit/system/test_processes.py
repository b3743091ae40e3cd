from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hermes_agent.system.processes import MARK, run, tool_environment

PATH = {"PATH": "/usr/bin:/bin"}


def go(command, *, timeout_s=30.0, limit=10_000, cancelled=None, env=PATH, cwd=Path("/"), **more):
    """Run with the limits of an ordinary call."""
    return run(
        command,
        cwd=cwd,
        env=env,
        timeout_s=timeout_s,
        output_limit_bytes=limit,
        cancelled=cancelled or threading.Event(),
        **more,
    )


def alive(word):
    """Return the processes that have `word` as an argument."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
            except OSError:
                continue
            if word.encode() in words and state != b"Z":
                found.append(entry.name)
    return found


def test_output_and_errors_come_in_their_order():
    done = go("echo one; echo two >&2; echo three")

    assert (done.exit_code, done.output, done.truncated) == (0, b"one\ntwo\nthree\n", False)


def test_a_program_may_be_given_with_its_arguments():
    assert go(["/bin/echo", "a b", "$HOME"]).output == b"a b $HOME\n"


def test_exit_codes_and_signals():
    assert [go(f"exit {code}").exit_code for code in (0, 1, 77, 255)] == [0, 1, 77, 255]
    assert go("kill -TERM $$").exit_code == 143


def test_a_program_that_is_not_there_is_an_error():
    with pytest.raises(FileNotFoundError):
        go(["/nowhere/program"])
    with pytest.raises(FileNotFoundError):
        go("true", cwd=Path("/nowhere"))


def test_the_environment_is_what_was_given_and_the_mark():
    names = {line.split("=")[0] for line in go("/usr/bin/env", env={**PATH, "ONLY": "1"}).output.decode().splitlines()}

    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} == {"PATH", "ONLY", MARK}


def test_no_file_of_the_agent_is_open_in_a_command(tmp_path):
    with (tmp_path / "secret").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        listing = go("ls -l /proc/self/fd").output.decode()

    assert "secret" not in listing


def test_a_command_has_no_terminal_and_no_input():
    assert go("read x; echo $?; tty; ls -l /proc/self/fd/0").output.decode().splitlines()[:2] == ["1", "not a tty"]


def test_input_may_come_from_a_file(tmp_path):
    (tmp_path / "in").write_text("given\n")
    with (tmp_path / "in").open("rb") as file:
        assert go("cat", stdin=file).output == b"given\n"


def test_a_flood_is_bounded_in_memory_and_keeps_both_ends():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = go("echo start; head -c 100000000 /dev/zero | tr '\\0' x; echo; echo end", limit=50_000)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    assert (done.head[:6], done.tail[-5:]) == (b"start\n", b"\nend\n")
    assert (len(done.head), len(done.tail)) == (20_000, 30_000)
    assert done.omitted == 100_000_000 + len(b"start\n\nend\n") - 50_000
    assert grown_kib < 20_000


@pytest.mark.parametrize("size", [0, 1, 3_999, 4_000, 4_001, 9_999, 10_000, 10_001])
def test_nothing_is_lost_or_doubled_around_the_limit(size):
    data = bytes(65 + n % 26 for n in range(size))
    done = go([sys.executable, "-c", f"import sys; sys.stdout.write(''.join(chr(65 + n % 26) for n in range({size})))"])

    assert done.omitted == max(size - 10_000, 0)
    assert done.head == data[:4_000]
    assert done.tail == data[4_000:][-6_000:]


def test_the_beginning_alone_ends_the_command_when_it_is_there():
    done = go("yes", limit=1_000, head_only=True)

    assert done.head == b"y\n" * 500
    assert not done.timed_out


def test_a_timeout_ends_the_whole_tree():
    word = "71.5"
    done = go(f"sleep {word} & setsid sleep {word} & (setsid nohup sleep {word} &) ; sleep {word}", timeout_s=0.5)

    assert done.timed_out
    assert alive(word) == []


def test_whoever_lost_parent_and_session_is_found_by_its_mark():
    word = "72.5"
    done = go(f"setsid sh -c 'setsid sleep {word} >/dev/null 2>&1 &' & sleep 0.3; echo done")

    assert done.output == b"done\n"
    assert done.ended_children == 1
    assert alive(word) == []


def test_a_grandchild_whose_parent_ends_at_the_signal_is_still_known_for_the_kill():
    word = "73.5"
    stubborn = f"import signal, time, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep({word})"
    child = f"env -i setsid {sys.executable} -c '{stubborn}' {word} & wait"
    done = go(f'sh -c "{child}" & sleep 60', timeout_s=1)

    assert done.timed_out
    assert alive(word) == []


def test_a_command_that_ignores_the_signal_is_killed():
    started = time.monotonic()
    done = go("trap '' TERM INT HUP; while :; do sleep 0.05; done", timeout_s=0.3)

    assert (done.timed_out, done.exit_code) == (True, 137)
    assert time.monotonic() - started < 20


def test_a_command_that_cleans_up_at_the_signal_has_the_time_for_it(tmp_path):
    done = go("trap 'echo cleaned; exit 5' TERM; sleep 60 & wait", timeout_s=0.5, cwd=tmp_path)

    assert (done.output, done.exit_code) == (b"cleaned\n", 5)


def test_a_stopped_process_is_ended_too():
    word = "74.5"
    go(f"sleep {word} & kill -STOP $!; kill -STOP $$", timeout_s=0.5)

    assert alive(word) == []


def test_a_fork_storm_is_ended():
    word = "75.5"
    go(f"while :; do sleep {word} & sleep 0.005; done", timeout_s=0.5)

    assert alive(word) == []


def test_a_cancellation_ends_the_command_within_a_second_or_so():
    cancelled = threading.Event()
    threading.Timer(0.2, cancelled.set).start()
    started = time.monotonic()
    done = go("sleep 60", cancelled=cancelled)

    assert done.cancelled
    assert not done.timed_out
    assert time.monotonic() - started < 20


def test_a_call_that_is_cancelled_before_it_starts_does_not_run_on():
    cancelled = threading.Event()
    cancelled.set()

    assert go("sleep 60", cancelled=cancelled).cancelled


def test_a_child_that_keeps_the_pipe_open_does_not_hold_the_call():
    word = "76.5"
    done = go(f"echo out; sleep {word} &")

    assert (done.exit_code, done.output, done.timed_out, done.ended_children) == (0, b"out\n", False, 1)
    assert alive(word) == []


def test_a_child_that_writes_for_ever_does_not_hold_the_call():
    done = go("yes & sleep 0.05; exit 4")

    assert done.exit_code == 4
    assert done.truncated


def test_a_command_that_closes_its_output_is_waited_for(tmp_path):
    go("exec >&- 2>&-; sleep 0.3; touch done", cwd=tmp_path)

    assert (tmp_path / "done").exists()


def test_nothing_is_left_of_many_calls():
    gc.collect()  # what other tests left
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(30):
        go("sleep 60 & true")
    gc.collect()

    assert set(os.listdir("/proc/self/fd")) == before
    children = subprocess.run(
        ["ps", "-o", "stat=", "--ppid", str(os.getpid())], capture_output=True, text=True, check=False
    )
    assert not [state for state in children.stdout.split() if state.startswith("Z")]


def test_orphans_that_are_handed_to_us_leave_no_zombie():
    """As process 1 of a container, or as a child subreaper, we get them."""
    script = """
import ctypes, os, sys, threading
from pathlib import Path
from hermes_agent.system.processes import run
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
for command in ("setsid sleep 77 & true", "(setsid sleep 77 &) ; sleep 78"):
    run(command, cwd=Path("/"), env={"PATH": "/usr/bin:/bin"}, timeout_s=0.5, output_limit_bytes=100,
        cancelled=threading.Event())
try:
    print(os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    print("no child")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)

    assert (done.stdout, done.stderr) == ("no child\n", "")


def test_calls_in_several_threads_do_not_end_each_other():
    outputs = {}

    def work(number):
        outputs[number] = go(f"sleep 0.2; echo {number}").output

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert outputs == {n: f"{n}\n".encode() for n in range(8)}


def test_a_waiting_call_uses_next_to_no_processor_time():
    before = time.thread_time()
    go("sleep 1")

    assert time.thread_time() - before < 0.3


def test_only_listed_names_are_in_the_environment_of_a_tool():
    secrets = {
        "OPENAI_API_KEY": "sk-1",
        "ANTHROPIC_API_KEY": "x",
        "GITHUB_TOKEN": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "DATABASE_URL": "postgres://u:p@h/d",
        "CREDENTIALS_DIRECTORY": "/run/credentials/x",
        "NOTIFY_SOCKET": "/run/n",
        "WATCHDOG_USEC": "1",
        "WATCHDOG_PID": "1",
        "LISTEN_FDS": "1",
        "LISTEN_PID": "1",
        "JOURNAL_STREAM": "1:2",
        "INVOCATION_ID": "x",
        "DBUS_SESSION_BUS_ADDRESS": "x",
        "SSH_AUTH_SOCK": "x",
        "XDG_RUNTIME_DIR": "/run/user/0",
        "LD_PRELOAD": "x",
        "PYTHONPATH": "x",
        "HERMES_HOME": "x",
    }
    allowed = {"PATH": "/bin", "HOME": "/h", "LANG": "C", "LC_TIME": "de", "TZ": "UTC", "NIX_SSL_CERT_FILE": "/c"}

    assert tool_environment({**secrets, **allowed}) == allowed


def test_a_proxy_is_passed_on_unless_it_has_a_password():
    given = {"http_proxy": "http://proxy:3128", "HTTPS_PROXY": "http://user:pw@proxy:3128", "NO_PROXY": "localhost"}

    assert tool_environment(given) == {"http_proxy": "http://proxy:3128", "NO_PROXY": "localhost"}


def test_the_operator_may_pass_a_name_on_but_not_the_service_managers(caplog):
    given = {"GITHUB_TOKEN": "x", "NOTIFY_SOCKET": "/run/n", "LISTEN_FDS": "1", "OTHER": "y"}

    assert tool_environment(given, passthrough=["GITHUB_TOKEN", "NOTIFY_SOCKET", "LISTEN_FDS", "ABSENT"]) == {
        "GITHUB_TOKEN": "x"
    }
    assert "NOTIFY_SOCKET" in caplog.text
