"""Usage of each plugin: calls, errors, seconds in hooks and tools, tokens and dollars of `ctx.llm`.

Each call of a plugin is recorded with one append to a list, which threads share without a lock; the sums are made when
they are read. Built-in tools are not recorded.

The module also finds the plugin and the place of threads in which plugin code failed or does not return.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from types import FrameType, TracebackType
from typing import Any

from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.redaction import redactor
from hermes_agent.plugins.plugin_record import LoadedPlugin

MAX_NOTES = 1024
"""Limit of recorded entries that wait to be summed up."""
ERROR_CHARS = 300
"""Longest stored text of an error, in characters."""


@lazy_dataclass(slots=True)
class PluginUsage:
    """The sums of one plugin since the start of the process."""

    hook_calls: int = 0
    hook_errors: int = 0
    hook_seconds: float = 0.0
    tool_calls: int = 0
    tool_errors: int = 0
    """Handlers that raised, or returned a value of a type that is no result (§4.4)."""
    tool_seconds: float = 0.0
    other_errors: int = 0
    """Errors in the plugin's threads and in its `check_fn`."""
    llm_calls: int = 0
    llm_input_tokens: int = 0
    llm_output_tokens: int = 0
    llm_cost_usd: float = 0.0
    """Cost of the calls with a known price, in US dollars."""
    last_error: str = ""
    """Text and place of the last error; empty if there was none."""
    last_fault: str = ""
    """The last error that is counted in `other_errors`."""

    @property
    def errors(self) -> int:
        """Number of all errors."""
        return self.hook_errors + self.tool_errors + self.other_errors

    def to_json(self) -> dict[str, Any]:
        """Return the numbers by name, with the number of all errors as `errors`."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"errors": self.errors}


_Note = tuple[str, str, int, float, str, tuple[int, int, float]]
"""Plugin; `hook`, `tool`, `other` or `llm`; calls; seconds; error; input tokens, output tokens, US dollars."""
_NO_TOKENS = (0, 0, 0.0)


class UsageAccount:
    """The usage of all plugins in one process."""

    def __init__(self) -> None:
        self._notes: deque[_Note] = deque()
        self._hook_times: dict[str, list[float]] = {}
        """By plugin, the seconds of calls without an error: they are added in one step."""
        self._tool_times: dict[str, list[float]] = {}
        self._tallies: dict[str, PluginUsage] = {}
        self._lock = threading.Lock()

    def hook(self, plugin: str, hook: str, seconds: float, error: BaseException | None) -> None:
        """Record a finished call of a hook."""
        if error is None:
            times = self._hook_times.setdefault(plugin, [])
            times.append(seconds)
            if len(times) >= MAX_NOTES:
                self._fold()
        else:
            self._note((plugin, "hook", 1, seconds, f"hook {hook}: {error!r}", _NO_TOKENS))

    def hook_overran(self, plugin: str, hook: str, limit_s: float) -> None:
        """Record that a hook exceeded its time limit; the call itself is recorded when it ends."""
        self._note((plugin, "hook", 0, 0.0, f"hook {hook}: gave no answer within {limit_s:g} s", _NO_TOKENS))

    def tool(self, plugin: str, tool: str, seconds: float, error: str) -> None:
        """Record a call of a tool.

        Args:
            error: why the call gave no result; empty if it gave one.
        """
        if error:
            self._note((plugin, "tool", 1, seconds, f"tool {tool}: {error}", _NO_TOKENS))
        else:
            times = self._tool_times.setdefault(plugin, [])
            times.append(seconds)
            if len(times) >= MAX_NOTES:
                self._fold()

    def fault(self, plugin: str, text: str) -> None:
        """Record an error outside hooks and tools."""
        self._note((plugin, "other", 0, 0.0, text, _NO_TOKENS))

    def llm(self, plugin: str, input_tokens: int, output_tokens: int, cost_usd: float | None) -> None:
        """Record an answer of the model to a call of the plugin."""
        self._note((plugin, "llm", 1, 0.0, "", (input_tokens, output_tokens, cost_usd or 0.0)))

    def usage_of(self, plugin: str) -> PluginUsage:
        """Return the sums of a plugin; zeros if nothing was recorded."""
        self._fold()
        return self._tallies.get(plugin) or PluginUsage()

    def usage_by_plugin(self) -> dict[str, PluginUsage]:
        """Return the sums of all plugins with recorded usage, by plugin."""
        self._fold()
        return dict(sorted(self._tallies.items()))

    def _note(self, note: _Note) -> None:
        self._notes.append(note)
        if len(self._notes) >= MAX_NOTES:
            self._fold()

    def _fold(self) -> None:
        with self._lock:
            for plugin, waiting in list(self._hook_times.items()):
                taken = _taken(waiting)
                tally = self._tallies.setdefault(plugin, PluginUsage())
                tally.hook_calls += len(taken)
                tally.hook_seconds += sum(taken)
            for plugin, waiting in list(self._tool_times.items()):
                taken = _taken(waiting)
                tally = self._tallies.setdefault(plugin, PluginUsage())
                tally.tool_calls += len(taken)
                tally.tool_seconds += sum(taken)
            notes, tallies = self._notes, self._tallies
            while notes:
                plugin, kind, calls, seconds, error, tokens = notes.popleft()
                tally = tallies.setdefault(plugin, PluginUsage())
                if kind == "hook":
                    tally.hook_calls += calls
                    tally.hook_seconds += seconds
                elif kind == "tool":
                    tally.tool_calls += calls
                    tally.tool_seconds += seconds
                elif kind == "llm":
                    tally.llm_calls += calls
                    tally.llm_input_tokens += tokens[0]
                    tally.llm_output_tokens += tokens[1]
                    tally.llm_cost_usd += tokens[2]
                if error:
                    _add_error(tally, kind, error)


def _taken(waiting: list[float]) -> list[float]:
    """Remove and return the values; other threads append meanwhile."""
    count = len(waiting)
    taken = waiting[:count]
    del waiting[:count]
    return taken


def _add_error(tally: PluginUsage, kind: str, error: str) -> None:
    counted = f"{kind}_errors" if kind in ("hook", "tool") else "other_errors"
    setattr(tally, counted, getattr(tally, counted) + 1)
    tally.last_error = str(redactor(" ".join(error.split())[:ERROR_CHARS]))
    if kind == "other":
        tally.last_fault = tally.last_error


def account_lines(tally: PluginUsage) -> list[str]:
    """Return the sums as readable lines; empty if nothing was recorded."""
    lines = []
    if tally.tool_calls:
        lines.append(f"tools: {tally.tool_calls} calls, {tally.tool_errors} errors, {tally.tool_seconds:.3f} s")
    if tally.hook_calls or tally.hook_errors:
        lines.append(f"hooks: {tally.hook_calls} calls, {tally.hook_errors} errors, {tally.hook_seconds:.3f} s")
    if tally.llm_calls:
        cost = f", ${tally.llm_cost_usd:.4f}" if tally.llm_cost_usd else ""
        lines.append(
            f"model: {tally.llm_calls} calls, {tally.llm_input_tokens} tokens in, {tally.llm_output_tokens} out{cost}"
        )
    if tally.last_error:
        lines.append(f"last error of {tally.errors}: {tally.last_error}")
    return lines


_METRICS = (
    ("hermes_plugin_hook_calls_total", "hook_calls", "Calls of the plugin's hooks"),
    ("hermes_plugin_hook_seconds_total", "hook_seconds", "Seconds spent in the plugin's hooks"),
    ("hermes_plugin_tool_calls_total", "tool_calls", "Calls of the plugin's tools"),
    ("hermes_plugin_tool_seconds_total", "tool_seconds", "Seconds spent in the plugin's tools"),
    ("hermes_plugin_errors_total", "errors", "Errors of the plugin"),
    ("hermes_plugin_llm_calls_total", "llm_calls", "Answers of the model to the plugin's own calls"),
    ("hermes_plugin_llm_input_tokens_total", "llm_input_tokens", "Tokens that the plugin sent to the model"),
    ("hermes_plugin_llm_output_tokens_total", "llm_output_tokens", "Tokens that the model wrote for the plugin"),
    ("hermes_plugin_llm_cost_dollars_total", "llm_cost_usd", "Dollars of the plugin's calls with a known price"),
)


def metrics_text(tallies: dict[str, PluginUsage]) -> str:
    """Return the sums in Prometheus' text format; empty if there are none."""
    return "".join(line + "\n" for line in _metric_lines(tallies))


def _metric_lines(tallies: dict[str, PluginUsage]) -> Iterator[str]:
    for name, attribute, help_text in _METRICS if tallies else ():
        yield f"# HELP {name} {help_text}."
        yield f"# TYPE {name} counter"
        for plugin, tally in tallies.items():
            label = plugin.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            yield f'{name}{{plugin="{label}"}} {getattr(tally, attribute):.10g}'


logger = logging.getLogger(__name__)

FaultListener = Callable[[str, str], None]


class StalledCall(LazyNamedTuple):
    """A call of a plugin that does not return."""

    plugin: str
    place: str
    """Present position of the call, as `FILE:LINE (FUNCTION)`."""
    seconds: float
    """Seconds since the deadline of the call."""
    thread: str


def watch_threads(records: Callable[[], Sequence[LoadedPlugin]], fault: FaultListener) -> None:
    """Set a `threading.excepthook` that reports errors of plugins; others go to the previous hook.

    Args:
        fault: called with the plugin's key and a text.
    """
    before = threading.excepthook

    def hook(args: Any) -> None:
        plugin = None if args.exc_value is None else owner_of_thread(args.exc_traceback, records())
        if plugin is None:
            before(args)
            return
        name = args.thread.name if args.thread is not None else "?"
        logger.error(
            "a thread of plugin %s (%s) ended with %r; the agent goes on",
            plugin,
            name,
            args.exc_value,
            exc_info=args.exc_value,
            extra={"plugin": plugin},
        )
        fault(plugin, f"thread {name}: {args.exc_value!r}")

    threading.excepthook = hook


def owner_of_thread(traceback: TracebackType | None, records: Sequence[LoadedPlugin]) -> str | None:
    """Return the key of the plugin that owns the innermost frame of plugin code, or None."""
    found = None
    while traceback is not None:
        found = _owner_of_frame(traceback.tb_frame, records) or found
        traceback = traceback.tb_next
    return found


def stalled_calls(
    threads: Iterable[tuple[threading.Thread, float]], records: Sequence[LoadedPlugin]
) -> list[StalledCall]:
    """Return where plugin code runs in threads that have exceeded their deadline.

    Args:
        threads: threads with the seconds since their deadline, as `Bridge.stalled` returns them.
    """
    frames, found = sys._current_frames(), []
    for thread, seconds in threads:
        frame = frames.get(thread.ident or 0)
        while frame is not None:
            if (plugin := _owner_of_frame(frame, records)) is not None:
                place = f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"
                found.append(StalledCall(plugin, place, seconds, thread.name))
                break
            frame = frame.f_back
    return found


def _owner_of_frame(frame: FrameType, records: Sequence[LoadedPlugin]) -> str | None:
    """Return the key of the plugin that owns the code of a frame, or None."""
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    found = None
    for record in records:
        manifest = record.manifest
        if manifest.source == "entrypoint":
            mine = package == manifest.path.partition(":")[0].strip().partition(".")[0]
        else:
            mine = frame.f_code.co_filename.startswith(f"{manifest.path}/")
        found = manifest.key if mine else found
    return found
