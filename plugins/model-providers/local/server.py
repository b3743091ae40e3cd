"""Life cycle of the embedded model's process: started at the first use, and again after a crash."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import secrets
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hermes_agent.core.errors import ModelError

from .gguf import SystemPlace

logger = logging.getLogger(__name__)

START_DEADLINE_S = 180.0
"""Longest start in seconds. Loading takes 2 to 5 s from a warm disk cache; the rest is for slow disks."""
STOP_GRACE_S = 5.0
"""Seconds from the end of its stdin to SIGKILL."""
STDERR_LINES = 40
"""Number of last lines of the child that are kept for error texts."""
CHILD_ENVIRONMENT = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "GGML_VK_VISIBLE_DEVICES",
)
"""Variables that the child gets: no keys, no credential directory, no notify socket."""


class ServerAddress(NamedTuple):
    """Address and key of the running child."""

    base_url: str
    """`http://127.0.0.1:<port>`, without a path."""
    api_key: str
    """New for each start; only parent and child know it."""


@dataclass(frozen=True, slots=True)
class LocalServerSettings:
    """Settings with which the model is loaded."""

    path: Path
    """A GGUF file."""
    alias: str
    """Name of the model in answers of the server."""
    threads: int = 0
    """Computing threads; 0 means one less than the cores, but both of two, and all cores while reading a prompt."""
    context_length: int = 8192
    """Tokens of prompt and answer together."""
    idle_s: float = 300
    """Seconds without a request after which the process ends, which gives the memory back; 0 keeps it."""
    writes_tool_calls: bool = False
    """The model writes tool calls in the form of its own template; else the grammar of the adapter restricts it."""
    system_place: SystemPlace = "anywhere"
    """Where the template takes system messages."""
    state_dir: Path | None = None
    """Where the process leaves what it has read, and finds it when it starts again; None keeps nothing."""
    cache_ram_mib: int = 256
    """Mebibytes for prompts that were read earlier."""


class LocalModelServer:
    """One child process with one model. It belongs to the event loop that starts it.

    Args:
        start_deadline_s: longest start in seconds.
        program: path of the child's script; tests use another one.
    """

    def __init__(
        self,
        settings: LocalServerSettings,
        *,
        environ: Mapping[str, str] | None = None,
        start_deadline_s: float = START_DEADLINE_S,
        program: Path | None = None,
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._deadline_s = start_deadline_s
        self._program = program or Path(__file__).with_name("server_process.py")
        self._lock = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._address: ServerAddress | None = None
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        self._drain: asyncio.Task[None] | None = None
        self._closed = False
        self._users = 0
        self._idle: asyncio.TimerHandle | None = None
        self._unloading: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the running child, or None."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    @property
    def is_ready(self) -> bool:
        """Whether the child has loaded its weights, so that a request need not wait for it."""
        return self._address is not None and self.pid is not None

    @contextlib.asynccontextmanager
    async def use(self) -> AsyncIterator[ServerAddress]:
        """Return the address of the child for a request; while one runs, the child is not idle."""
        self._users += 1
        if self._idle is not None:
            self._idle.cancel()
        try:
            yield await self.ensure_started()
        finally:
            self._users -= 1
            if not self._users and self._settings.idle_s and not self._closed:
                self._idle = asyncio.get_running_loop().call_later(self._settings.idle_s, self._begin_unload)

    def _begin_unload(self) -> None:
        self._unloading = asyncio.create_task(self._unload(), name="embedded-model-unload")

    async def _unload(self) -> None:
        async with self._lock:
            if not self._users and self._process is not None:
                logger.info("embedded model unloaded: no request for %g s", self._settings.idle_s)
                await self._stop()

    async def ensure_started(self) -> ServerAddress:
        """Return the address of the child; start it if it does not run.

        Raises:
            ModelError: `unreachable`: it did not start; the hint has its last lines.
        """
        async with self._lock:
            if self._closed:
                raise ModelError("unreachable", "The embedded model was already shut down in this process.")
            if self._address is not None and self.pid is not None:
                return self._address
            await self._stop()
            try:
                async with asyncio.timeout(self._deadline_s):
                    self._address = await self._start()
            except TimeoutError:
                await self._stop(grace_s=0)
                raise self._failed(f"was not ready within {self._deadline_s:g} s") from None
            except BaseException:  # also cancelled: a half-started child is of no use
                await self._stop(grace_s=0)
                raise
            return self._address

    async def exit_reason(self, within_s: float = 2.0) -> str | None:
        """Return how the child ended, or None if it still runs after `within_s` seconds."""
        process = self._process
        if process is None:
            return "was stopped"
        ended = asyncio.ensure_future(process.wait())
        await asyncio.wait((ended,), timeout=within_s)
        if not ended.done():
            ended.cancel()
            return None
        return _describe_exit(ended.result())

    def last_lines(self) -> str:
        """Return the last lines of the child, for an error text."""
        return "\n".join(self._stderr)

    async def aclose(self) -> None:
        """Stop the child. No request may be running."""
        self._closed = True
        if self._idle is not None:
            self._idle.cancel()
        async with self._lock:
            await self._stop()

    async def _start(self) -> ServerAddress:
        key = secrets.token_urlsafe(32)
        environ = os.environ if self._environ is None else self._environ
        self._stderr.clear()
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            str(self._program),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=child_environment(environ),
            cwd="/",
            start_new_session=True,  # Ctrl-C in the terminal interrupts the turn, not the model
        )
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self._drain = asyncio.create_task(self._collect(process.stderr), name="embedded-model-stderr")
        # the key goes through the pipe: other users can read arguments in /proc
        with contextlib.suppress(ConnectionError):  # it ended at once, as the next read shows
            process.stdin.write(json.dumps(self._child_settings(key)).encode() + b"\n")
            await process.stdin.drain()
        line = await process.stdout.readline()
        if not line:
            ending = _describe_exit(await process.wait())
            await self._drain
            raise self._failed(ending)
        url = str(json.loads(line)["url"])
        logger.info("embedded model ready: pid=%s model=%s", process.pid, self._settings.path.name)
        return ServerAddress(url, key)

    def _child_settings(self, key: str) -> dict[str, object]:
        settings = self._settings
        return {
            "path": str(settings.path.absolute()),
            "alias": settings.alias,
            "api_key": key,
            "threads": settings.threads or default_threads(),
            # reading a prompt is a short burst for which the user waits; writing takes longer
            "prompt_threads": settings.threads or len(os.sched_getaffinity(0)),
            "context_length": settings.context_length,
            "state": self._state_path(),
            "cache_ram_mib": settings.cache_ram_mib,
            "sys_path": [str(Path(entry).absolute()) for entry in sys.path],
        }

    def _state_path(self) -> str:
        """Return the file for what the process has read; it is of use to the same weights and settings alone."""
        settings = self._settings
        if settings.state_dir is None:
            return ""
        status = settings.path.stat() if settings.path.exists() else None
        parts = [settings.path.absolute(), settings.context_length, status and (status.st_size, int(status.st_mtime))]
        digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
        try:
            settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as exc:
            logger.info("embedded model: nothing is kept for the next start: %s", exc)
            return ""
        return str(settings.state_dir.absolute() / f"{digest}.state")

    async def _collect(self, stream: asyncio.StreamReader) -> None:
        rest = ""
        while chunk := await stream.read(8192):
            *lines, rest = (rest + chunk.decode(errors="replace")).split("\n")
            rest = rest[-8192:]
            for line in lines:
                self._note(line)
        self._note(rest)

    def _note(self, line: str) -> None:
        if line.strip():
            self._stderr.append(line.rstrip())
            logger.debug("embedded model: %s", line.rstrip())

    async def _stop(self, grace_s: float = STOP_GRACE_S) -> None:
        process, drain = self._process, self._drain
        self._process = self._address = self._drain = None
        if process is not None and process.returncode is None:
            assert process.stdin is not None
            process.stdin.close()
            # no asyncio.timeout: on Python 3.11.2 it does not end in TimeoutError inside of a cancelled task
            ended = asyncio.ensure_future(process.wait())
            try:
                await asyncio.wait((ended,), timeout=grace_s)
            finally:
                if process.returncode is None:
                    process.kill()
            await ended
        if drain is not None:
            await drain

    def _failed(self, what: str) -> ModelError:
        lines = self.last_lines()
        return ModelError(
            "unreachable",
            f"The embedded model ({self._settings.path}) {what} while starting.",
            hint=f"Its last lines:\n{lines}" if lines else "It printed nothing.",
        )


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the child: the variables of `CHILD_ENVIRONMENT` that are set."""
    return {name: environ[name] for name in CHILD_ENVIRONMENT if name in environ}


def default_threads() -> int:
    """Return one less than the cores that this process may use, but both of two."""
    cores = len(os.sched_getaffinity(0))
    return max(cores - 1, min(cores, 2))


def _describe_exit(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = str(-status)
    if name == "SIGKILL":
        return "was killed (SIGKILL: by the kernel when memory ran out, or by a user)"
    return f"was ended by {name}"
