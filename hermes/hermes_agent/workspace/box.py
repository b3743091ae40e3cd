"""A box for commands: in it they can harm the working directory and nothing else."""

from __future__ import annotations

import abc
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Sandbox", "run_probe", "probe_sandbox"]

PROBE_LIMIT_S = 120.0
"""How long a trial may take. It is done once, and after one that fails the agent has no such box until it starts again:
an idle machine needs less than a second, an emulated or very busy one half a minute."""


class Sandbox(abc.ABC):
    """One way to make boxes. Whether it works here is tried out once, at the first command."""

    name: str
    makes_terminals = False
    opens = False
    """Whether it shows folders of the user's, which a command can be let write in."""
    keeps = False
    """Whether it can protect paths below the directory that may be written."""
    network = "there is no network"
    """What the model is told about the network."""
    offline = True
    """Whether commands reach no network but their own."""
    bounded = False
    """Whether the box itself limits memory and processes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._problem: str | None = None

    @property
    def problem(self) -> str:
        """Why no box can be made here; empty when it can."""
        with self._lock:
            if self._problem is None:
                self._problem = self.probe()
            return self._problem

    @abc.abstractmethod
    def probe(self) -> str:
        """Make a box and return why that failed; empty when it did not."""

    @abc.abstractmethod
    def wrap(
        self,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        *,
        root: str,
        tty: bool = False,
        network: str = "",
        keep: Sequence[str] = (),
        sockets: Sequence[str] = (),
        beside: str = "",
    ) -> tuple[list[str], dict[str, str]]:
        """Return the program and the environment that run `argv` in a box, in the resolved directory `cwd`.

        Args:
            root: what may be written; elsewhere `cwd` can be read at most.
            network: whose network it shares; empty: it has one of its own.
            tty: the command has a terminal, which the box makes when `makes_terminals`.
            beside: a directory that it sees, too: the working directory, where `root` is another.
            keep: paths below `root` that it cannot change, where the box `keeps` any.
            sockets: paths below `root` of the Unix sockets in it: whose program is outside, that one it cannot reach.
        """

    def checks(self) -> Iterator[tuple[bool, str, str]]:
        """Yield rows of `(ok, label, detail)` about what the box shows, for `hermes doctor`."""
        yield from ()

    def network_problem(self) -> str:
        """Return why commands do not have the network that `terminal.network` asks for; empty when they have."""
        return ""

    def is_hidden(self, cwd: str, root: str, beside: str = "") -> bool:
        """Say whether a directory is known not to be there in a box for `root`."""
        return False

    def is_writable(self, root: str) -> bool:
        """Say whether a command may write to a directory that is its `root`."""
        return True


def probe_sandbox(argv: Sequence[str], env: Mapping[str, str] | None = None, *, name: str = "") -> str:
    """Run a program that does nothing, in a box; return what it says when it fails, under its name."""
    name = name or argv[0]
    try:
        done = run_probe(argv, {"PATH": os.defpath, **(env or {})})
    except OSError as exc:
        return f"{name} does not run: {exc}"
    said = done.stderr.decode("utf-8", "replace").strip()
    return "" if done.returncode == 0 else f"{name} says: {said or f'exit status {done.returncode}'}"


def run_probe(argv: Sequence[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
    """Run a program that tries something out, without input.

    Raises:
        OSError: it cannot be run, or has not ended in time.
    """
    try:
        return subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_LIMIT_S, env=env, check=False
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(
            f"it had not ended after {PROBE_LIMIT_S:g} s: it hangs, or the machine is too busy; a restart tries again"
        ) from None
