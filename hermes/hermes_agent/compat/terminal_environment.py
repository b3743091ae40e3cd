"""Upstream's base class of terminal environments, `tools/environments/base.py`.

A plugin derives a backend from `BaseEnvironment` and implements `_run_bash`; the provider that it registers
(upstream's `agent/terminal_env_provider.py`) creates the instances. Source: plugin contract §4.12.
"""

from __future__ import annotations

import abc
import codecs
import contextlib
import os
import shlex
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import IO, Any, Protocol

from hermes_agent.compat.agent import is_interrupted

POLL_INTERVAL_S = 0.05
EXIT_TIMEOUT, EXIT_INTERRUPTED = 124, 130


class ProcessHandle(Protocol):
    """Result of `_run_bash`: a `subprocess.Popen` or an object with these members."""

    @property
    def stdout(self) -> IO[Any] | None:
        """Standard output and error."""
        ...

    @property
    def returncode(self) -> int | None:
        """The exit status, or None while the process runs."""
        ...

    def poll(self) -> int | None: ...
    def kill(self) -> None: ...
    def wait(self, timeout: float | None = None) -> int: ...


class ThreadedProcessHandle:
    """Process handle for a function that runs the command and returns its output and exit status.

    Args:
        exec_fn: runs in a new thread.
        cancel_fn: called by `kill`.
    """

    def __init__(self, exec_fn: Callable[[], tuple[str, int]], cancel_fn: Callable[[], None] | None = None) -> None:
        self._cancel = cancel_fn
        self._done = threading.Event()
        self._returncode: int | None = None
        reading, self._writing = os.pipe()
        self.stdout: IO[str] = os.fdopen(reading, "r", encoding="utf-8", errors="replace")
        threading.Thread(target=self._work, args=(exec_fn,), name="hermes-environment", daemon=True).start()

    def _work(self, run: Callable[[], tuple[str, int]]) -> None:
        try:
            text, code = run()
        except Exception as exc:  # noqa: BLE001 - plugin code; the command failed
            text, code = f"{type(exc).__name__}: {exc}", 1
        with contextlib.suppress(OSError), os.fdopen(self._writing, "w", encoding="utf-8", errors="replace") as end:
            end.write(text)
        self._returncode = code
        self._done.set()

    @property
    def returncode(self) -> int | None:
        """The exit status, or None while the function runs."""
        return self._returncode

    def poll(self) -> int | None:
        """Return the exit status, or None while the function runs."""
        return self._returncode

    def kill(self) -> None:
        """Call `cancel_fn`, if there is one."""
        if self._cancel is not None:
            self._cancel()

    def wait(self, timeout: float | None = None) -> int:
        """Wait at most `timeout` seconds for the end; return the exit status, or -1 after the time limit."""
        self._done.wait(timeout)
        return -1 if self._returncode is None else self._returncode


class BaseEnvironment(abc.ABC):
    """Base of backends that run commands; directory and exported variables persist between commands.

    Args:
        cwd: the directory of the first command; later that in which the last command ended.
        timeout: default time limit of a command, in seconds.
        env: environment variables for commands.
    """

    _stdin_mode = "pipe"
    """`heredoc` writes a command's input into the script; for a `_run_bash` that cannot pass input."""

    def __init__(self, cwd: str, timeout: int, env: Mapping[str, str] | None = None) -> None:
        self.cwd, self.timeout, self.env = cwd, timeout, dict(env or {})
        self._session_id = uuid.uuid4().hex[:12]
        self._snapshot_path = f"{self.get_temp_dir().rstrip('/')}/hermes-snap-{self._session_id}.sh"
        self._cwd_marker = f"__HERMES_CWD_{self._session_id}__"

    def get_temp_dir(self) -> str:
        """Return a writable directory of the backend."""
        return "/tmp"

    def _run_bash(
        self, cmd_string: str, *, login: bool = False, timeout: int = 120, stdin_data: str | None = None
    ) -> ProcessHandle:
        """Start bash with a script.

        Args:
            login: start a login shell.
            timeout: seconds.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement _run_bash()")

    @abc.abstractmethod
    def cleanup(self) -> None:
        """Release all resources."""

    def init_session(self) -> None:
        """Save the variables of a login shell for later commands."""
        self.execute("true", timeout=30)

    def execute(
        self,
        command: str,
        cwd: str = "",
        *,
        timeout: float | None = None,
        stdin_data: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Run a command, wait for it, and return `output` and `returncode`.

        The status is 124 after the time limit and 130 after an interrupt.

        Args:
            timeout: seconds; None means the default of the environment.
            options: accepted and ignored.
        """
        self._before_execute()
        limit_s = int(timeout or self.timeout)
        if stdin_data and self._stdin_mode == "heredoc":
            mark = f"HERMES_STDIN_{uuid.uuid4().hex[:12]}"
            command, stdin_data = f"{{ {command}\n}} <<'{mark}'\n{stdin_data}\n{mark}", None
        script = self._wrap_command(command, cwd or self.cwd)
        result = self._wait_for_process(
            self._run_bash(script, login=not self._kept(), timeout=limit_s, stdin_data=stdin_data), limit_s
        )
        self._update_cwd(result)
        return result

    def stop(self) -> None:
        """Release all resources, as `cleanup` does."""
        self.cleanup()

    def _before_execute(self) -> None:  # noqa: B027 - optional for subclasses
        """Prepare a command, for example by copying files to the backend."""

    def _kept(self) -> bool:
        return getattr(self, "_ran", False)

    def _wrap_command(self, command: str, cwd: str) -> str:
        """Return a script that restores the variables, runs the command, and prints the final directory."""
        snapshot = shlex.quote(self._snapshot_path)
        given = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in self.env.items())
        begin = f"cd -- {self._quote_cwd_for_cd(cwd)} || exit 126\n" if cwd else ""
        return (
            f"[ ! -r {snapshot} ] || . {snapshot} >/dev/null 2>&1\n{given}{begin}"
            f"eval {shlex.quote(command)}\n__hermes_status=$?\n"
            f"(umask 077; export -p > {snapshot}) 2>/dev/null\n"
            f"printf '\\n%s%s%s\\n' {self._cwd_marker} \"$(pwd -P)\" {self._cwd_marker}\n"
            "exit $__hermes_status\n"
        )

    @staticmethod
    def _quote_cwd_for_cd(cwd: str) -> str:
        if cwd == "~":
            return '"$HOME"'
        return f'"$HOME"/{shlex.quote(cwd[2:])}' if cwd.startswith("~/") else shlex.quote(cwd)

    def _wait_for_process(self, proc: ProcessHandle, timeout: float = 120) -> dict[str, Any]:
        """Collect a process's output until it ends, its time limit passes, or the turn is interrupted."""
        parts: list[str] = []
        reader = threading.Thread(target=_read, args=(proc.stdout, parts), name="hermes-environment", daemon=True)
        reader.start()
        until, end, note = time.monotonic() + timeout, 0, ""
        while proc.poll() is None and not note:
            if is_interrupted():
                end, note = EXIT_INTERRUPTED, "\n[Command interrupted]"
            elif time.monotonic() > until:
                end, note = EXIT_TIMEOUT, f"\n[Command timed out after {timeout:g}s]"
            else:
                reader.join(POLL_INTERVAL_S) if reader.is_alive() else time.sleep(POLL_INTERVAL_S)
        if note:
            self._kill_process(proc)
        reader.join(1.0)  # background children of the command may keep the stream open
        code = proc.returncode
        return {"output": "".join(parts) + note, "returncode": end or (code if code is not None else -1)}

    def _kill_process(self, proc: ProcessHandle) -> None:
        proc.kill()

    def _update_cwd(self, result: dict[str, Any]) -> None:
        """Move the final directory from a command's output to `cwd`."""
        text, mark = str(result["output"]), self._cwd_marker
        end = text.rfind(mark)
        begin = text.rfind(mark, 0, max(end, 0))
        if begin < 0:
            return
        self.cwd = text[begin + len(mark) : end] or self.cwd
        self._ran = True
        head = text[:begin].removesuffix("\n")
        result["output"] = head + text[end + len(mark) :].removeprefix("\n")


def _read(stream: IO[Any] | None, parts: list[str]) -> None:
    """Append a stream's text to `parts` as it arrives."""
    if stream is None:
        return
    try:
        number = stream.fileno()
    except (AttributeError, OSError, ValueError):  # a readable object without a file descriptor
        text = stream.read()
        parts.append(text if isinstance(text, str) else bytes(text).decode("utf-8", "replace"))
        return
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with contextlib.suppress(OSError):
        while data := os.read(number, 65_536):
            parts.append(decoder.decode(data))
    parts.append(decoder.decode(b"", final=True))
