"""`PluginHost`: a real host with the plugins under test; scripted approvals and keywords of hooks."""

from __future__ import annotations

import contextlib
import io
import json
import time
import tomllib
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hermes_agent.agent.command_router import CommandCall
from hermes_agent.agent.conversation import Conversation
from hermes_agent.commands import parse_command
from hermes_agent.contracts.command import CliCommand, SlashCommand
from hermes_agent.contracts.tool import ApprovalRequest, ToolEntry
from hermes_agent.core.errors import PluginError, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.messages import (
    Content,
    ToolCall,
    ToolFinished,
    TurnEnd,
    TurnEvent,
    TurnSink,
    fold,
    new_id,
)
from hermes_agent.core.text import nearest_name
from hermes_agent.hooks import HOOKS
from hermes_agent.host import Host
from hermes_agent.plugins.context import PluginContext
from hermes_agent.plugins.host_services import KINDS
from hermes_agent.plugins.plugin_record import LoadedPlugin
from hermes_agent.plugins.registration import run_cli_command
from hermes_agent.policy import Choice, Refusal
from hermes_agent.runtime.loops import LoopThread
from hermes_agent.testing.environment import IsolatedEnvironment, LogLine
from hermes_agent.testing.scripted_model import ScriptedModel

__all__ = ["Answer", "ApprovalScript", "CliOutcome", "PluginHost", "ScriptedApprover", "hook_keywords"]


def hook_keywords(hook: str, given: dict[str, Any], **known: Any) -> dict[str, Any]:
    """Return all keywords for a callback of `hook`: `given`, `known`, and default values for the rest.

    The names of the keywords come from the catalog of hooks, the default values from `hook_keywords.toml`.

    Args:
        given: keywords that the test sets; they override all others.
        known: keywords of the present host (`session_id`, `model`, …), used if the hook has them.

    Raises:
        ValueError: there is no such hook; the message suggests the nearest name.
    """
    known_hook = HOOKS.get(hook)
    if known_hook is None:
        near = nearest_name(hook, tuple(HOOKS))
        raise ValueError(f"there is no hook {hook!r}" + (f"; did you mean {near!r}?" if near else ""))
    table = tomllib.loads(Path(__file__).with_name("hook_keywords.toml").read_text(encoding="utf-8"))
    values: dict[str, Any] = {
        **table["values"],
        **{name: None for name in table["nothing"]},
        **{name: {} for name in table["objects"]},
        **{name: [] for name in table["lists"]},
        **{name: time.time() for name in table["times"]},
    }
    return {name: known.get(name, values.get(name, "")) for name in known_hook.keywords} | given


ApprovalScript = Iterable[Choice] | Callable[[ApprovalRequest], Choice]
"""One answer (`once`, `session`, `deny`) for each approval request, or a function of the request."""


class ScriptedApprover:
    """Approver that answers approval requests from a script, and refuses them when the script is used up."""

    def __init__(self, script: ApprovalScript = ()) -> None:
        self.requests: list[ApprovalRequest] = []
        """Approval requests so far, in order."""
        self._decide = script if callable(script) else None
        self._left = [] if callable(script) else list(script)

    async def ask(self, request: ApprovalRequest) -> Choice | Refusal:
        """Record an approval request, and return the next answer of the script."""
        self.requests.append(request)
        if self._decide is not None:
            return self._decide(request)
        if self._left:
            return self._left.pop(0)
        return Refusal(
            f"{request.tool} needs approval to {request.summary}, and `approvals` of this test has no answer"
        )


T = TypeVar("T")
LIMIT_S = 60.0
"""Time limit for one call of a test, in seconds."""


@lazy_dataclass(frozen=True, slots=True)
class Answer:
    """Result of a turn."""

    text: str
    """The reply, after `transform_llm_output`."""
    reason: TurnEnd
    """`answered`, `interrupted` or `budget`."""
    events: tuple[TurnEvent, ...]
    """Events of the turn, in order."""

    @property
    def tool_calls(self) -> list[ToolFinished]:
        """Return the finished tool calls, with their results."""
        return [event for event in self.events if isinstance(event, ToolFinished)]


class _EventList(TurnSink):
    """A sink that collects the events of a turn."""

    def __init__(self) -> None:
        self.events: list[TurnEvent] = []

    def event(self, event: TurnEvent) -> None:
        self.events.append(event)


class CliOutcome(LazyNamedTuple):
    """Result of a command `hermes NAME …`."""

    status: int
    """Exit status."""
    out: str
    err: str


class PluginHost:
    """A real host with the plugins under test; the methods block, and may be called from any thread."""

    def __init__(
        self,
        host: Host,
        keys: Sequence[str],
        *,
        ground: IsolatedEnvironment,
        model: ScriptedModel,
        approver: ScriptedApprover,
        log: list[LogLine],
        loop: LoopThread,
        platform: str,
    ) -> None:
        self.host = host
        """The host itself, for what this class does not offer. It is not a stable interface."""
        self.keys = tuple(keys)
        """Keys of the plugins under test, in load order."""
        self.model = model
        self.log = log
        """Log lines so far."""
        self.home: Path = ground.home
        """`HERMES_HOME`."""
        self.workspace: Path = ground.workspace
        """Working directory of the file tools and of the tool `terminal`."""
        self._approver = approver
        self._loop = loop
        self._platform = platform
        self._current: Conversation | None = None

    # -- actions ---------------------------------------------------------------------------------------------

    def dispatch_tool(self, name: str, args: Mapping[str, Any] | str | None = None) -> str:
        """Call a tool as the model does, with hooks, approval and size limit; return its result text.

        Args:
            args: a mapping, or JSON text as a model writes it.
        """
        text = args if isinstance(args, str) else json.dumps(dict(args or {}))
        return self._run(self._dispatch(ToolCall(new_id("call"), name, text)))

    def fire(self, hook: str, **keywords: Any) -> list[Any]:
        """Call all listeners of a hook with all its keywords, and return their results without None.

        Args:
            keywords: keywords that matter to the test; the others get default values (`hook_keywords`).

        Raises:
            ValueError: there is no such hook.
            Exception: an exception of a listener; outside of tests the agent logs it and continues.
        """
        conversation = self.conversation
        payload = hook_keywords(
            hook,
            keywords,
            session_id=conversation.session_id,
            task_id=conversation.session_id,
            model=conversation.model,
            platform=conversation.platform,
        )
        results = self.host.hooks.fire_and_wait(hook, **payload)
        for result in results:
            if result.error is not None:
                raise result.error
        return [result.value for result in results]

    def run_command(self, line: str) -> str | None:
        """Run the slash command `/name arguments` in the conversation, and return the text that it shows.

        Raises:
            UserError: there is no such command.
        """
        parsed = parse_command(line)
        name, arguments = parsed or (line, "")
        command = self.host.commands.find(name, "terminal")
        if parsed is None or command is None:
            raise UserError(f"there is no command {line!r}; these are: {', '.join(sorted(self.commands))}")
        return self._run(self._command(command, arguments, name))

    def run_cli(self, argv: Sequence[str]) -> CliOutcome:
        """Run `hermes ARGV…`, a terminal command of a plugin, and return its exit status and output.

        Raises:
            UserError: there is no such command.
        """
        command = self.host.cli_commands.get(argv[0]) if argv else None
        if command is None:
            raise UserError(f"no plugin registers `hermes {' '.join(argv)}`; these are: {', '.join(self.cli_commands)}")
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = run_cli_command(command, argv[1:], self.host.bridge)
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else int(end.code is not None)
        return CliOutcome(status, out.getvalue(), err.getvalue())

    def ask(self, question: Content) -> Answer:
        """Run a turn with a user message, and return the answer.

        Raises:
            ModelError: the model request failed, for example because the script is used up.
        """
        return self._run(self._ask(question))

    def new_session(self) -> str:
        """End the conversation and start another one; return the id of its session."""
        old = self._current
        self._current = fresh = self._run(self._opened("" if old is None else old.session_id))
        if old is not None:
            self._run(fresh.replace(old))
        return fresh.session_id

    @property
    def conversation(self) -> Conversation:
        """Return the conversation of all calls; it is opened at first use."""
        return self._run(self._open())

    async def _opened(self, after: str = "") -> Conversation:
        return await self.host.agent.open(None, platform=self._platform, approver=self._approver, after=after)

    # -- results ---------------------------------------------------------------------------------------------

    @property
    def records(self) -> list[LoadedPlugin]:
        """Return the record of each plugin under test."""
        return [record for record in self.host.plugins.records if record.manifest.key in self.keys]

    @property
    def record(self) -> LoadedPlugin:
        """Return the record of the only plugin under test.

        Raises:
            LookupError: there is no plugin under test, or more than one.
        """
        records = self.records
        if len(records) != 1:
            raise LookupError(f"{len(records)} plugins are under test ({', '.join(self.keys)}): use `records`")
        return records[0]

    @property
    def module(self) -> Any:
        """Return the module of the plugin, or the object of its entry point."""
        return self.record.module

    @property
    def ctx(self) -> PluginContext:
        """Return the context that was passed to the plugin's `register`.

        Raises:
            PluginError: the plugin does not run.
        """
        record = self.record
        ctx = self.host.plugins.contexts.get(record.manifest.key)
        if ctx is None:
            raise PluginError(record.manifest.key, f"the plugin does not run: {record.error}")
        return ctx

    @property
    def tools(self) -> dict[str, ToolEntry]:
        """Return the tools that the plugins registered, by name."""
        return self._owned(self.host.tools)

    @property
    def visible_tools(self) -> list[str]:
        """Return the names of all tools that the model now gets."""
        return [definition["function"]["name"] for definition in self.host.agent.definitions(self._platform)]

    @property
    def hooks(self) -> dict[str, list[Callable[..., Any]]]:
        """Return the callbacks that the plugins registered, by hook."""
        bus = self.host.hooks
        found = {hook: [c for plugin, c in bus.listeners(hook) if plugin in self.keys] for hook in bus.names()}
        return {hook: callbacks for hook, callbacks in found.items() if callbacks}

    @property
    def commands(self) -> dict[str, SlashCommand]:
        """Return the slash commands that the plugins registered, by name."""
        return self._owned(self.host.commands)

    @property
    def cli_commands(self) -> dict[str, CliCommand]:
        """Return the terminal commands that the plugins registered, by name."""
        return self._owned(self.host.cli_commands)

    @property
    def providers(self) -> dict[str, dict[str, Any]]:
        """Return the providers that the plugins registered, by kind (`web_search`, `tts`, …) and name."""
        found = {kind: self._owned(self.host.providers[kind]) for kind in KINDS}
        return {kind: providers for kind, providers in found.items() if providers}

    @property
    def problems(self) -> list[str]:
        """Return why plugins do not run, and which registrations were refused (name taken or invalid)."""
        return [
            text
            for record in self.records
            for text in (*([record.error] if record.error else []), *(p.text for p in record.problems))
        ]

    @property
    def notes(self) -> list[str]:
        """Return hints for the author of the plugins; nothing was refused."""
        return [note for record in self.records for note in record.notes]

    @property
    def log_text(self) -> str:
        """Return the log as text, with lines `LEVEL logger: message`."""
        return "\n".join(map(str, self.log))

    @property
    def approval_requests(self) -> list[ApprovalRequest]:
        """Return the approval requests so far, in order."""
        return self._approver.requests

    # -- internals -------------------------------------------------------------------------------------------

    def _owned(self, registry: Any) -> dict[str, Any]:
        return {name: value for name, value in registry.items() if registry.owner(name) in self.keys}

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(coroutine, timeout_s=LIMIT_S)

    async def _dispatch(self, call: ToolCall) -> str:
        dispatcher = self.host.dispatcher
        name, arguments = dispatcher.resolve(call, self.host.tools.names())
        scope = (await self._open()).scope(new_id("turn"))
        return (await dispatcher.run(call.id, name, arguments, scope)).result

    async def _command(self, command: SlashCommand, arguments: str, name: str) -> str | None:
        called, scope = CommandCall(command, arguments, name), (await self._open()).scope()
        await self.host.slash.announce(called, scope)
        return await self.host.slash.run(called, scope)

    async def _ask(self, question: Content) -> Answer:
        conversation = await self._open()
        events = _EventList()
        end = await fold(conversation.turn(question), events)
        assert end is not None
        return Answer(end.text, end.reason, tuple(events.events))

    async def _open(self) -> Conversation:
        if self._current is None:
            self._current = await self._opened()
        return self._current
