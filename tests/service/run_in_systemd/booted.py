"""One running container: started, its script's output passed on, stopped in order or by force."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from run_in_systemd.plan import HarnessError

__all__ = ["Booted", "Sink"]

Sink = Callable[[bytes], object]
POWEROFF = signal.SIGRTMIN + 4
"""What systemd as PID 1 takes for `systemctl poweroff`."""
PIPES = ("out", "err", "ctl")


class Booted:
    """The container of one run.

    Args:
        directory: the run's directory; `io/` gets the pipes that the container writes to.
        plan_file: the plan that `inside` reads.
        out: takes what the script writes to stdout.
        err: takes what it writes to stderr.
    """

    def __init__(self, directory: Path, plan_file: Path, out: Sink, err: Sink) -> None:
        self.state: str | None = None
        """What `systemctl is-system-running` said after the boot; None before."""
        self.status: int | None = None
        """The script's exit status; None while it runs."""
        self.gone = ""
        """How the script's unit ended when the script did not report its status itself."""
        self._directory = directory
        self._sinks = {"out": out, "err": err}
        self._control = b""
        self._selector = selectors.DefaultSelector()
        self._pipes: dict[str, int] = {}
        for name in PIPES:
            path = directory / "io" / name
            os.mkfifo(path, 0o600)
            # Read-write: the reader never sees an end of file between two writers.
            self._pipes[name] = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            self._selector.register(self._pipes[name], selectors.EVENT_READ, name)
        self._process = self._launch(plan_file)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._selector.register(self._pidfd, selectors.EVENT_READ, "exit")

    def _launch(self, plan_file: Path) -> subprocess.Popen[bytes]:
        package = str(Path(__file__).resolve().parent.parent)
        code = f"import sys; sys.path.insert(0, {package!r}); import run_in_systemd.inside as i; i.launch(sys.argv[1])"
        with open(self._directory / "console", "wb") as console:
            return subprocess.Popen(
                [sys.executable, "-I", "-c", code, str(plan_file)],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
                cwd="/",
            )

    def wait_booted(self, limit_s: float) -> None:
        """Wait until systemd has started what it was to start.

        Raises:
            HarnessError: it did not.
        """
        if not self._wait(lambda: self.state is not None or self.status is not None, limit_s):
            why = "it ended" if self._exited() else f"not up within {limit_s:g} s"
            raise HarnessError(f"systemd did not boot: {why}{self._complaints()}")

    def wait_script(self, limit_s: float) -> int:
        """Wait for the script and return its exit status.

        Raises:
            HarnessError: it ran too long, or the container ended before it.
        """
        if not self._wait(lambda: self.status is not None, limit_s):
            raise HarnessError(
                f"the container went away before its script ended{self._complaints()}"
                if self._exited()
                else f"the script ran past {limit_s:g} s"
            )
        assert self.status is not None
        if self.gone:
            raise HarnessError(f"the script's unit ended before the script did: {self.gone}")
        return self.status

    def stop(self, limit_s: float) -> bool:
        """Shut down in order; false when the limit was over and the container was killed."""
        in_order = self._exited()
        init = self._init_pid()
        if not in_order and self.state is not None and init is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(init, POWEROFF)
            in_order = self._wait(self._exited, limit_s)
        self.kill()
        return in_order

    def kill(self) -> None:
        """End everything at once, and close the pipes."""
        if not self._exited():
            self._process.kill()
        self._process.wait()
        for fd in self._pipes.values():
            os.close(fd)
        self._pipes.clear()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        self._selector.close()

    def _wait(self, done: Callable[[], bool], limit_s: float) -> bool:
        until = time.monotonic() + limit_s
        while not done():
            left = until - time.monotonic()
            if left <= 0:
                return False
            for key, _ in self._selector.select(left):
                if key.data == "exit":
                    self._selector.unregister(self._pidfd)
                    self._process.wait()
                    self._take_all(PIPES)
                    return done()
                self._take(key.data)
        self._take_all(("out", "err"))  # last words that are in the pipes still
        return True

    def _take_all(self, names: tuple[str, ...]) -> None:
        while any([self._take(name) for name in names]):
            pass

    def _take(self, name: str) -> bool:
        """Read what a pipe holds now; false when it is empty."""
        try:
            data = os.read(self._pipes[name], 1 << 16)
        except BlockingIOError:
            return False
        if name == "ctl":
            *lines, self._control = (self._control + data).split(b"\n")
            for line in lines:
                self._heed(line.decode(errors="replace"))
        else:
            self._sinks[name](data)
        return bool(data)

    def _heed(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "started":
            self.state = rest
        elif word == "status" and self.status is None:
            self.status = int(rest)
        elif word == "gone" and self.status is None:
            self.status, self.gone = -1, rest

    def _exited(self) -> bool:
        return self._process.poll() is not None

    def _init_pid(self) -> int | None:
        """Return the host's pid of systemd: the first descendant that is pid 1 in a namespace of its own."""
        todo = [self._process.pid]
        while todo:
            pid = todo.pop(0)
            try:
                status = Path(f"/proc/{pid}/status").read_text()
                for task in Path(f"/proc/{pid}/task").iterdir():
                    todo += map(int, (task / "children").read_text().split())
            except OSError:
                continue  # it ended meanwhile
            namespaces = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
            if len(namespaces) > 1 and namespaces[-1] == "1" and pid != self._process.pid:
                return pid
        return None

    def _complaints(self) -> str:
        texts = []
        for name in ("init.err", "console"):
            with contextlib.suppress(FileNotFoundError):
                texts.append((self._directory / name).read_text(errors="replace").strip()[-3000:])
        found = "\n".join(filter(None, texts))
        return f"\n{found}" if found else ""
