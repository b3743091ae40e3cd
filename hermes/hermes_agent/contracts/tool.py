"""Tools: what the model may call.

A tool is called with the arguments that the model wrote, after coercion to its JSON schema, and returns text,
usually JSON. Source: plugin contract §4.1.

Skills: instructions that the model opens when it needs them. Source: plugin contract §6.

A skill is a file `SKILL.md`, with a few fields at its top and files beside it. Those of plugins are read-only, have the
plugin's name before theirs (`plugin:skill`), and stand in no list: who wants one asks for it by name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from hermes_agent.contracts.kind import Kind

if TYPE_CHECKING:
    from hermes_agent.contracts.command import SlashCommand

__all__ = ["ApprovalRequest", "Does", "Effect", "PluginSkill", "SKILL", "TOOL", "Registrar", "ToolEntry", "ToolHandler"]


TOOL = Kind("tool", "register_tool", "tool")

ToolHandler = Callable[..., Any]
"""`handler(args: dict, **kwargs) -> str`; the keywords are `task_id`, `session_id`, `user_task` and what
`dispatch_tool` was given. A coroutine function when `is_async`."""


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A question for the person before a tool runs."""

    tool: str
    summary: str
    """What is about to happen, in a few words: `run a command`."""
    detail: str
    """What exactly: the command, the path."""
    rule_key: str
    """What a "for this session" answer covers."""
    plugin: str = ""
    """The plugin that asks; empty for the agent's own rules."""
    keep: Callable[[], None] | None = None
    """Writes down that it is never asked again (`always`); None where that is not offered. Raises UserError."""
    smart: bool = False
    """Whether a model may find it harmless and spare the person the question (`approvals.mode: smart`)."""
    once: bool = False
    """Whether the answer covers this call alone: `session` and `always` are not offered, and count as `once`."""
    mandatory: bool = False
    """Whether the user decides each time, whatever `approvals.mode`, `cron_mode` and earlier answers say."""
    also: tuple[str, ...] = ()
    """Further rules whose earlier answers cover this question, as those of the folders above a folder."""

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
"""`opens`: reads at an address that it is given. `remembers`: writes what later turns are told."""


class Effect(NamedTuple):
    """What a call does to the world, and whose words it returns. Ours; `docs/operator/untrusted-text.md`."""

    does: Does
    decides: tuple[str, ...] = ()
    """The parameters that say what happens and where; empty: each may."""
    place: str | Callable[[Mapping[str, Any], str], Iterable[str]] = ""
    """The parameter that names the file; or what returns the files, resolved, of arguments and result."""
    returns: Literal["own", "others", "foreign", "records", "person"] = "own"
    """`others`: what others wrote; `foreign`: the same, given to the model between marks; `records`: the same, as a
    JSON document that the service made, with others' texts in its fields. `person`: what they say."""
    named: Callable[[Mapping[str, Any]], Iterable[str]] | None = None
    """Returns what decides, too, and stands inside of another argument: the files of a patch."""


@dataclass(slots=True)
class ToolEntry:
    """A registered tool; the attribute names are upstream's."""

    name: str
    toolset: str
    schema: dict[str, Any]
    """OpenAI function object: `name`, `description`, `parameters`."""
    handler: ToolHandler
    check_fn: Callable[[], Any] | None = None
    """Truthy when the tool may be shown to the model; not asked at dispatch."""
    requires_env: list[str] = field(default_factory=list)
    """Shown to people; not a gate."""
    is_async: bool = False
    description: str = ""
    emoji: str = ""
    """For the progress line; empty is shown as `⚡`."""
    max_result_size_chars: float | None = None
    """Longest result given to the model; `inf` for no limit, None for the default."""
    dynamic_schema_overrides: Callable[[], dict[str, Any]] | None = None
    """Merged over the schema at every definition build; when it fails, the schema stays."""
    approval: Callable[[dict[str, Any]], ApprovalRequest | str | None] | None = None
    """Ours: which question to ask for these arguments; None means that the call needs none."""
    parallel_safe: bool | Callable[[dict[str, Any]], str] = False
    """Ours: whether several calls of one answer may run at once; a function names the file that a call changes, and
    calls that change different files may."""
    idempotent: bool = False
    """Ours: whether a second run of the same call does no harm; only then is a call that a crash cut off run again."""
    handler_keywords: tuple[ToolHandler, frozenset[str] | None] | None = field(
        default=None, init=False, compare=False, repr=False
    )
    """Ours: a handler and the keywords that it names (None: it takes all), once they were looked up."""
    effect: Effect | None = None
    """Ours: what a call does; None: it is guessed from the name (`policy.foreign`)."""
    destinations: Callable[[Mapping[str, Any]], Iterable[str]] | None = None
    """Ours: the addresses of the service that a call asks. A tool that has this judges the addresses in its arguments
    by itself, each time that it connects; of other tools' arguments they are judged before the call."""


SKILL = Kind("skill", "register_skill", "skill")


@dataclass(frozen=True, slots=True)
class PluginSkill:
    """A skill that a plugin registered.

    Attributes:
        path: of the `SKILL.md`.
        plugin: the plugin's name, which stands before the colon.
        bare_name: what stands after it.
    """

    path: Path
    plugin: str
    bare_name: str
    description: str = ""
    frontmatter: Mapping[str, Any] = field(default_factory=dict)

    @property
    def qualified(self) -> str:
        """The name that it is opened by."""
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

    def every_day(self, prune: Callable[[], int]) -> None:
        """Call `prune` once a day in a worker; it returns the number of removed items."""
        ...
