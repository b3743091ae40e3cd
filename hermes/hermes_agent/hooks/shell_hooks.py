"""Shell hooks: programs of the config's `hooks` that are run on an event, with JSON in and JSON out.

A program gets the event on standard input and may answer on standard output. It is never run through a shell: values of
the event reach it as arguments (`{tool_name}`), in its environment (`HERMES_TOOL_NAME`) or in the JSON.
Source: plugin contract §9.2 and its later additions (`fail_closed`, exit status 2, `modify`, `approve`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.text import nearest_name
from hermes_agent.hooks.catalog import HOOKS, matches_tool

logger = logging.getLogger(__name__)

OTHER_KEYS = frozenset({"output_spill", "outbound"})
"""Keys of `hooks` that are no events."""
REFUSED = frozenset({"transform_api_error_classification"})
"""Events that no program may answer."""
GUARD = "pre_tool_call"
"""The event in which a program may block a call."""
TOOL_EVENTS = frozenset({"pre_tool_call", "post_tool_call", "transform_tool_result", "transform_terminal_output"})
"""Events with a `tool_name`, which a matcher looks at."""
DEFAULT_S, LONGEST_S = 60.0, 300.0
MAX_OUTPUT = 1024 * 1024
"""Bytes of each output stream that are read; the rest is dropped."""
MAX_MESSAGE = 400
"""Characters of standard error that become the reason of a refusal."""
REST_S = 60.0
"""Seconds for which a program that timed out is not run; a guard that fails closed blocks in that time."""
NO_EVENT = "there is no such event"
BLOCKED = "Blocked by shell hook."
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish"})


class ShellHook(LazyNamedTuple):
    """One entry of `hooks`."""

    event: str
    command: str
    matcher: str = ""
    """Regular expression for the whole name of a tool; "" matches every one."""
    timeout_s: float = DEFAULT_S
    fail_closed: bool = False
    """Whether a guard that fails blocks the call."""
    sandbox: bool = False
    """Whether the program runs in the sandbox of commands."""

    @property
    def owner(self) -> str:
        """Return the name under which the program is accounted, as a plugin is."""
        return f"shell:{Path(self.argv()[0]).name}"

    def argv(self, values: Mapping[str, str] | None = None) -> list[str]:
        """Return program and arguments; `values` replace the placeholders within an argument."""
        words = shlex.split(os.path.expanduser(self.command))  # noqa: PTH111 - a line, no path
        fill = {} if values is None else values
        return [_PLACEHOLDER.sub(lambda found: fill.get(found[1], found[0]), word) for word in words]

    @property
    def blocks_on_failure(self) -> bool:
        """Say whether the hook is a guard that fails closed."""
        return self.fail_closed and self.event == GUARD

    def matches(self, tool: str) -> bool:
        """Say whether the hook is for this tool."""
        return not self.matcher or self.event not in TOOL_EVENTS or matches_tool(self.matcher, tool)


class HookRun(LazyNamedTuple):
    """How a program ended."""

    status: int | None
    """Exit status; None when it was not started or did not end in time."""
    stdout: str = ""
    stderr: str = ""
    problem: str = ""
    """Why there is no status."""

    def answer(self) -> dict[str, Any] | None:
        """Return the JSON object of standard output; None without one."""
        try:
            value = json.loads(self.stdout) if self.stdout.strip() else None
        except ValueError:
            return None
        return value if isinstance(value, dict) else None


RunHook = Callable[[list[str], bytes, Mapping[str, str], str, float], HookRun]
"""Runs a program: arguments, standard input, environment, working directory, seconds."""


def read_shell_hooks(value: Any) -> tuple[list[ShellHook], list[str]]:
    """Return the hooks of the config's `hooks`, in either form, and what is wrong with the others.

    Args:
        value: a mapping from event to entries, or a list of entries with `event`.
    """
    found: list[ShellHook] = []
    problems: list[str] = []
    for event, entry in _entries(value):
        hook, problem = _read_entry(event, entry)
        if hook is not None:
            found.append(hook)
        if problem:
            problems.append(f"hooks.{event}: {problem}")
    return found, problems


def broken_guards(value: Any) -> list[tuple[ShellHook, str]]:
    """Return what stands for each guard that fails closed and has no usable command, with the reason."""
    found = []
    for event, entry in _entries(value):
        hook, problem = _read_entry(event, entry)
        if hook is None and event == GUARD and isinstance(entry, dict) and _fails_closed(entry):
            found.append((ShellHook(GUARD, f"hooks.{GUARD}", _matcher(entry), fail_closed=True), problem))
    return found


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        yield from ((str(entry.get("event", "")), entry) for entry in value if isinstance(entry, dict))
        return
    for event, entries in (value or {}).items():
        if event not in OTHER_KEYS:
            yield from ((str(event), entry) for entry in (entries if isinstance(entries, list) else [entries]))


def _read_entry(event: str, entry: Any) -> tuple[ShellHook | None, str]:
    if event not in HOOKS or event in REFUSED:
        near = nearest_name(event, HOOKS)
        return None, NO_EVENT + (f" (did you mean `{near}`?)" if near else "")
    if not isinstance(entry, dict) or not str(entry.get("command") or "").strip():
        return None, "an entry is a mapping with `command`"
    closed = _fails_closed(entry)
    seconds = entry.get("timeout", DEFAULT_S)
    seconds = min(max(float(seconds), 1.0), LONGEST_S) if isinstance(seconds, int | float) else DEFAULT_S
    hook = ShellHook(event, str(entry["command"]), _matcher(entry), seconds, closed, bool(entry.get("sandbox", False)))
    try:
        words = hook.argv()
    except ValueError as exc:
        return None, f"`command` cannot be split into words: {exc}"
    if _is_shell_text(words):
        return None, "a placeholder in the text of a shell would be run by it; use $HERMES_TOOL_NAME and its like"
    return hook, "`fail_closed` has a meaning for pre_tool_call alone" if closed and event != GUARD else ""


def _matcher(entry: Mapping[str, Any]) -> str:
    when = entry.get("when") or {}
    tools = when.get("tools") if isinstance(when, dict) else None
    return str(entry.get("matcher") or "") or "|".join(map(re.escape, map(str, tools or ())))


def _fails_closed(entry: Mapping[str, Any]) -> bool:
    return bool(entry.get("fail_closed", entry.get("failClosed", False)))


def _is_shell_text(words: list[str]) -> bool:
    """Say whether a placeholder stands in a program that a shell reads from its arguments."""
    is_shell = any(Path(word).name in _SHELLS for word in words[:2])
    return (
        is_shell
        and any(word.startswith("-") and "c" in word for word in words)
        and any(_PLACEHOLDER.search(word) for word in words)
    )


def payload_of(event: str, values: Mapping[str, Any], *, cwd: str, profile: str) -> dict[str, Any]:
    """Return what a program reads on standard input."""
    rest = {name: value for name, value in values.items() if name not in ("tool_name", "args", "session_id")}
    return {
        "hook_event_name": event,
        "tool_name": values.get("tool_name"),
        "tool_input": values.get("args"),
        "session_id": values.get("session_id") or values.get("parent_session_id") or "",
        "cwd": cwd,
        "profile": profile,
        "extra": rest,
    }


def read_answer(hook: ShellHook, done: HookRun) -> dict[str, Any] | None:
    """Return a program's answer in the form of a plugin's callback; None for no answer."""
    said = done.answer()
    if hook.event == "pre_tool_call":
        return _read_guard(hook, done, said)
    if said is None:
        return None
    if hook.event == "pre_verify":
        word = said.get("action") or said.get("decision")
        if word in ("continue", "block"):
            return {"action": word, "message": str(said.get("message") or said.get("reason") or "")}
    context = said.get("context")
    return {"context": context} if isinstance(context, str) else None


def _read_guard(hook: ShellHook, done: HookRun, said: dict[str, Any] | None) -> dict[str, Any] | None:
    said = said or {}
    message = str(said.get("message") or said.get("reason") or "")
    changed = said.get("args", said.get("tool_input"))
    if "block" in (said.get("action"), said.get("decision")):
        return {"action": "block", "message": message or BLOCKED}
    if "modify" in (said.get("action"), said.get("decision")) and isinstance(changed, dict):
        return {"action": "modify", "args": changed}
    if said.get("action") == "approve":
        return {"action": "approve"} | {k: said[k] for k in ("message", "rule_key") if isinstance(said.get(k), str)}
    if done.status == 2:
        return {"action": "block", "message": done.stderr.strip()[:MAX_MESSAGE] or BLOCKED}
    if hook.fail_closed and (reason := failure(done)):
        return {"action": "block", "message": f"hook {hook.command} failed closed: {reason}"}
    return None


def failure(done: HookRun) -> str:
    """Return what went wrong with a program, or "" for nothing."""
    if done.problem:
        return done.problem
    if done.status:
        return f"exit status {done.status}"
    return "its output is no JSON object" if done.stdout.strip() and done.answer() is None else ""


class ShellHookCallback:
    """Runs one program for each call of its event; registered on the hook bus like a plugin's callback.

    Args:
        run: `run_program`, or what runs it in the sandbox.
        environment: the environment of the program, without secrets.
        cwd: returns the working directory.
        profile: name of the agent's profile.
        clock: returns seconds.
    """

    def __init__(
        self,
        hook: ShellHook,
        run: RunHook,
        *,
        environment: Callable[[], Mapping[str, str]],
        cwd: Callable[[], str],
        profile: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.hook = hook
        self._run = run
        self._environment = environment
        self._cwd = cwd
        self._profile = profile
        self._clock = clock
        self._rests_until = 0.0
        self.__name__ = hook.command

    def __call__(self, **values: Any) -> dict[str, Any] | None:
        hook, tool = self.hook, str(values.get("tool_name") or "")
        if not hook.matches(tool):
            return None
        if (rest_s := self._rests_until - self._clock()) > 0:
            problem = f"no answer within {hook.timeout_s:g} seconds; it is asked again in {rest_s:.0f} seconds"
            return read_answer(hook, HookRun(None, problem=problem))
        cwd = self._cwd()
        payload = payload_of(hook.event, values, cwd=cwd, profile=self._profile)
        fill = {"tool_name": tool, "session_id": str(payload["session_id"]), "cwd": cwd, "event": hook.event}
        names = {f"HERMES_{name.upper()}": value for name, value in fill.items() if name != "event"}
        environment = {**self._environment(), **names, "HERMES_HOOK_EVENT": hook.event}
        text = json.dumps(payload, ensure_ascii=False, default=str).encode()
        done = self._run(hook.argv(fill), text, environment, cwd, hook.timeout_s)
        is_refusal = hook.event == "pre_tool_call" and done.status == 2
        if (problem := failure(done)) and not is_refusal:
            logger.warning("shell hook %s: %s: %s", hook.event, hook.command, problem, extra={"plugin": hook.owner})
        self._rest(done)
        return read_answer(hook, done)

    def _rest(self, done: HookRun) -> None:
        """Let a program that timed out rest, so that it costs its time limit once.

        A guard that does not fail closed is asked about each call all the same: nothing else checks the call.
        """
        hook = self.hook
        if done.status is not None or "no answer" not in done.problem:
            return
        if hook.event != "pre_tool_call" or hook.fail_closed:
            self._rests_until = self._clock() + REST_S
            text = "shell hook %s: %s rests for %g seconds after its timeout"
            logger.warning(text, hook.event, hook.command, REST_S, extra={"plugin": hook.owner})


def run_program(argv: list[str], stdin: bytes, env: Mapping[str, str], cwd: str, timeout_s: float) -> HookRun:
    """Run a program without a shell, and return how it ended; its process group ends with it."""
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, stderr=pipe, env=dict(env), cwd=cwd or None, start_new_session=True
        )
    except (OSError, ValueError) as exc:
        return HookRun(None, problem=f"cannot be started: {exc}")
    with process:
        try:
            streams = _exchange(process, stdin, time.monotonic() + timeout_s)
            status = None if streams is None else process.wait(1)
        except subprocess.TimeoutExpired:
            streams = status = None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    if streams is None:
        return HookRun(None, problem=f"no answer within {timeout_s:g} seconds")
    out, err = (text.decode("utf-8", "replace") for text in streams)
    return HookRun(status, out, err)


def _exchange(process: subprocess.Popen[bytes], stdin: bytes, end: float) -> tuple[bytes, bytes] | None:
    """Write standard input and read both outputs until they are closed; None at the deadline."""
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    kept = {process.stdout: bytearray(), process.stderr: bytearray()}
    rest = memoryview(stdin)
    with selectors.DefaultSelector() as selector:
        os.set_blocking(process.stdin.fileno(), False)
        selector.register(process.stdin, selectors.EVENT_WRITE)
        for stream in kept:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(end - time.monotonic(), 0))
            if not ready:
                return None
            for key, _ in ready:
                if key.fileobj is process.stdin:
                    rest = _write_some(process.stdin.fileno(), rest)
                    if not rest:
                        selector.unregister(process.stdin)
                        with contextlib.suppress(BrokenPipeError):
                            process.stdin.close()
                elif piece := os.read(key.fd, 65_536):
                    text = kept[key.fileobj]  # type: ignore[index]
                    text += piece[: MAX_OUTPUT - len(text)]
                else:
                    selector.unregister(key.fileobj)
    return bytes(kept[process.stdout]), bytes(kept[process.stderr])


def _write_some(fd: int, rest: memoryview) -> memoryview:
    """Write what a pipe takes, and return what is left; nothing is left for a program that does not read."""
    try:
        return rest[os.write(fd, rest) :]
    except BlockingIOError:
        return rest
    except BrokenPipeError:
        return rest[:0]
