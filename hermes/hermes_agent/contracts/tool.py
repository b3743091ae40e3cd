"""Tools, their approval requests and effects; skills of plugins.

A tool gets the arguments of the model, coerced to its JSON schema, and returns text, usually JSON. A skill is a file
`SKILL.md` with instructions that the model loads on demand. Skills of plugins are read-only and are named
`plugin:skill`. Source: plugin contract §4.1, §6.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from hermes_agent.contracts.kind import Kind
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass

if TYPE_CHECKING:
    from hermes_agent.contracts.command import SlashCommand

__all__ = ["ApprovalRequest", "Does", "Effect", "PluginSkill", "SKILL", "TOOL", "Registrar", "ToolEntry", "ToolHandler"]


TOOL = Kind("tool", "register_tool", "tool")

ToolHandler = Callable[..., Any]
"""`handler(args: dict, **kwargs) -> str`; the keywords are `task_id`, `session_id`, `user_task` and those of
`dispatch_tool`. A coroutine function if `is_async`."""


@lazy_dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A question for the user before a tool runs."""

    tool: str
    summary: str
    """What is about to happen, in a few words: `run a command`."""
    detail: str
    """The exact action: the command, the path."""
    rule_key: str
    """Key of the rule that an answer `session` covers."""
    plugin: str = ""
    """The plugin that asks; "" for built-in rules."""
    keep: Callable[[], None] | None = None
    """Store the answer `always`; None if it is not offered. Raises UserError."""
    smart: bool = False
    """Whether a model may approve it instead of the user (`approvals.mode: smart`)."""
    once: bool = False
    """Whether the answer covers this call only: `session` and `always` are not offered, and count as `once`."""
    mandatory: bool = False
    """Whether the user decides each time, regardless of `approvals.mode`, `cron_mode` and previous answers."""
    also: tuple[str, ...] = ()
    """Additional rules with answers that cover this question, such as those of parent folders."""
    covers: str = ""
    """What an answer `session` covers, for the user: `this host`."""

    @property
    def is_lasting(self) -> bool:
        """Whether an answer may cover later calls (`session`)."""
        return not (self.once or self.mandatory)

    @property
    def is_always_offered(self) -> bool:
        """Whether `always` is offered."""
        return self.is_lasting and self.keep is not None

    @property
    def answers(self) -> tuple[str, ...]:
        """The answers that are offered."""
        return (
            "once",
            *(["session"] if self.is_lasting else []),
            *(["always"] if self.is_always_offered else []),
            "deny",
        )


Does = Literal["reads", "opens", "writes", "runs", "sends", "remembers"]
"""`opens`: reads an address from its arguments. `remembers`: writes text that later turns read."""


class Effect(LazyNamedTuple):
    """What a call does, and where its result comes from. An extension: `docs/operator/untrusted-text.md`."""

    does: Does
    decides: tuple[str, ...] = ()
    """Parameters that determine the action and its target; empty: any parameter may."""
    place: str | Callable[[Mapping[str, Any], str], Iterable[str]] = ""
    """The parameter that names the file, or a function of arguments and result that returns resolved paths."""
    returns: Literal["own", "others", "foreign", "records", "person"] = "own"
    """Source of the result.

    `others`: text of others. `foreign`: the same, marked as such for the model. `records`: a JSON document of the
    service, with texts of others in its fields. `person`: text of the user."""
    named: Callable[[Mapping[str, Any]], Iterable[str]] | None = None
    """Return values inside of arguments that determine the action, too, such as the files of a patch."""


@lazy_dataclass(slots=True)
class ToolEntry:
    """A registered tool, with upstream's attribute names; those that upstream lacks are extensions."""

    name: str
    toolset: str
    schema: dict[str, Any]
    """OpenAI function object: `name`, `description`, `parameters`."""
    handler: ToolHandler
    check_fn: Callable[[], Any] | None = None
    """Truthy if the tool is shown to the model; not called for a tool call."""
    requires_env: list[str] = field(default_factory=list)
    """Shown to users; not enforced."""
    is_async: bool = False
    description: str = ""
    emoji: str = ""
    """Emoji of the progress line; empty: `⚡`."""
    max_result_size_chars: float | None = None
    """Limit of the result for the model, in characters; `inf`: no limit; None: the default."""
    dynamic_schema_overrides: Callable[[], dict[str, Any]] | None = None
    """Merged into the schema whenever the definitions are built; if it fails, the schema stays."""
    approval: Callable[[dict[str, Any]], ApprovalRequest | str | None] | None = None
    """Extension: return the approval request for these arguments; None if none is needed."""
    parallel_safe: bool | Callable[[dict[str, Any]], str] = False
    """Extension: whether several calls of one answer may run in parallel.

    A function returns the file that a call changes; calls that change different files run in parallel."""
    idempotent: bool = False
    """Extension: whether the same call may run twice; only then does a call run again after a crash."""
    handler_keywords: tuple[ToolHandler, frozenset[str] | None] | None = field(
        default=None, init=False, compare=False, repr=False
    )
    """Extension: a handler and the keywords that it names (None: all), cached after the first call."""
    effect: Effect | None = None
    """Extension: what a call does; None: guessed from the name (`policy.taint_rules`)."""
    destinations: Callable[[Mapping[str, Any]], Iterable[str]] | None = None
    """Extension: the addresses of the service that a call reaches.

    Such a tool checks the addresses in its arguments itself at each connection; those of other tools are checked before
    the call."""


SKILL = Kind("skill", "register_skill", "skill")
MCP_SERVER = Kind("mcp_server", "", "MCP server", is_used=True)
"""An MCP server of a portable package."""


@lazy_dataclass(frozen=True, slots=True)
class PluginSkill:
    """A skill that a plugin registered.

    Attributes:
        path: path of its `SKILL.md`.
        plugin: name of the plugin, before the colon.
        bare_name: name after the colon.
    """

    path: Path
    plugin: str
    bare_name: str
    description: str = ""
    frontmatter: Mapping[str, Any] = field(default_factory=dict)

    @property
    def qualified(self) -> str:
        """The name that loads it."""
        return f"{self.plugin}:{self.bare_name}"


class Registrar(Protocol):
    """What `register(ctx, deps)` of a built-in feature may call on `ctx`.

    A feature registers for the owner `builtin`, in the stores that plugins register in. The class of `ctx` extends the
    context of plugins (`plugins.context.PluginContext`) by what only built-in code may declare.
    """

    def register_tool(
        self,
        name: str,
        toolset: str | None = None,
        schema: dict[str, Any] | None = None,
        handler: Callable[..., Any] | None = None,
        check_fn: Callable[[], Any] | None = None,
        *,
        emoji: str = "",
        idempotent: bool = False,
        effect: Effect | None = None,
        approval: Callable[[dict[str, Any]], ApprovalRequest | str | None] | None = None,
        dynamic_schema_overrides: Callable[[], dict[str, Any]] | None = None,
        max_result_size_chars: float | None = None,
        destinations: Callable[[Mapping[str, Any]], Iterable[str]] | None = None,
    ) -> object:
        """Register a tool.

        Args:
            approval: returns the approval request of a call, the reason of a refusal, or None.
            dynamic_schema_overrides: returns the parts of the schema that depend on the machine.
            max_result_size_chars: limit of a result; None takes the default.
            destinations: returns the addresses that a call connects to.
        """
        ...

    def register_slash_command(self, command: SlashCommand) -> None:
        """Register a slash command."""
        ...

    def on_close(self, close: Callable[[], Awaitable[object]]) -> None:
        """Call `close` when the process ends, in the order of registration."""
        ...

    def on_reload(self, apply: Callable[[], object]) -> None:
        """Call `apply`, in a worker, after the config was read again."""
        ...

    def on_plugins_loaded(self, apply: Callable[[], object]) -> None:
        """Call `apply` after the start's plugins were loaded, so that its registrations come after theirs."""
        ...

    def every_day(self, prune: Callable[[], int]) -> None:
        """Call `prune` once a day in a worker; it returns the number of removed items."""
        ...
