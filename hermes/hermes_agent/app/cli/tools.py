"""`hermes tools`: which tools there are, why one is or is not, and which of them a platform is offered."""

from __future__ import annotations

from hermes_agent.app.cli.command import (
    JSON,
    Args,
    CliSubcommand,
    argument,
    exclusive,
    loaded_host,
    print_json,
    print_rows,
)
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, UserError

__all__ = ["add_tools"]

tools_command = CliSubcommand("tools", "list the tools, and say why one is or is not there")
add_tools = tools_command.add

SERVERS_S = 20.0
"""Longest wait for MCP servers."""
PLATFORM = argument("--platform", metavar="NAME", default="cli", help="cli (default), api_server, telegram, cron, …")
TOOLSET = argument("toolset", metavar="TOOLSET", help="see `hermes tools list`")
PLACE = exclusive(
    PLATFORM, argument("--everywhere", action="store_true", help="for all platforms (agent.disabled_toolsets)")
)


@tools_command.action("list", "show every tool, its toolset and its owner", JSON, PLATFORM, aliases=["ls"])
def _list_tools(args: Args) -> int:
    from hermes_agent.plugins.explain import tool_rows  # with the plugins

    with loaded_host() as host:
        host.mcp.wait_connected(SERVERS_S)
        rows = tool_rows(host.tools, host.toolsets, args.platform)
    if args.json:
        return print_json([row._asdict() for row in rows])
    print_rows([("NAME", "TOOLSET", "OWNER", "STATE"), *rows])
    return EXIT_OK


@tools_command.action(
    "explain",
    "say why the model is shown a tool, or is not (exit status 1)",
    argument("name", metavar="NAME", help="name of the tool"),
    PLATFORM,
)
def _explain_tool(args: Args) -> int:
    from hermes_agent.plugins.explain import explain_tool  # with the plugins

    with loaded_host() as host:
        if args.name.startswith("mcp__"):
            host.mcp.wait_connected(SERVERS_S)
        said = explain_tool(args.name, host.tools, host.toolsets, host.plugins.records, args.platform)
    print(said)
    return EXIT_OK if said.is_available else EXIT_FAILED


@tools_command.action(
    "info",
    "show what the model is told of a tool, or the tools of a toolset",
    argument("name", metavar="NAME", help="name of a tool or a toolset"),
    JSON,
)
def _tool_info(args: Args) -> int:
    with loaded_host() as host:
        if args.name.startswith("mcp"):
            host.mcp.wait_connected(SERVERS_S)
        entry = host.tools.get(args.name)
        toolset = None if entry is not None else host.toolsets.get(args.name)
        tools = host.toolsets.resolve(args.name)
    if entry is None and toolset is None:
        raise UserError(f"there is no tool or toolset {args.name!r}", hint="`hermes tools list` shows those that are.")
    if args.json:
        return print_json(toolset if entry is None else entry.schema)
    if entry is None:
        print(f"toolset {args.name}: {', '.join(tools)}")
        return EXIT_OK
    print(f"{entry.name} (toolset {entry.toolset})\n{entry.description}")
    parameters = entry.schema.get("parameters") or {}
    required = parameters.get("required") or ()
    for name, spec in (parameters.get("properties") or {}).items():
        kind = spec.get("type", "any") if isinstance(spec, dict) else "any"
        about = spec.get("description", "") if isinstance(spec, dict) else ""
        print(f"  {name}{'' if name in required else ' (optional)'}: {kind}  {about}".rstrip())
    return EXIT_OK


@tools_command.action("enable", "offer a toolset on a platform", TOOLSET, PLACE)
def _enable_toolset(args: Args) -> int:
    return _change_toolset(args, offer=True)


@tools_command.action("disable", "offer a toolset on a platform no more", TOOLSET, PLACE)
def _disable_toolset(args: Args) -> int:
    return _change_toolset(args, offer=False)


def _change_toolset(args: Args, *, offer: bool) -> int:
    from hermes_agent.config.edit import set_value
    from hermes_agent.core.registry import BUILTIN

    with loaded_host() as host:
        if not host.toolsets.exists(args.toolset):
            known = ", ".join(host.toolsets.names())
            raise UserError(f"there is no toolset {args.toolset!r}", hint=f"Toolsets: {known}.")
        disabled = list(host.config.get("agent.disabled_toolsets") or ())
        toolset_of = host.tools.get_tool_to_toolset_map()
        named = host.config.get(f"platform_toolsets.{args.platform}")
        if named is None:
            named = sorted({toolset_of[tool] for tool in host.toolsets.offered_tools(args.platform)})
            named = [name for name in named if not name.startswith("mcp-")]
        plugins = sorted({toolset_of[tool] for tool in host.tools.names() if host.tools.owner(tool) != BUILTIN})
        home = host.home
    if args.everywhere:
        set_value(home, ("agent", "disabled_toolsets"), _with_name(disabled, args.toolset, there=not offer))
        print(f"{args.toolset} is {'no longer disabled' if offer else 'disabled'} on every platform.")
        return EXIT_OK
    if offer and args.toolset in disabled:
        raise UserError(
            f"{args.toolset!r} is in agent.disabled_toolsets",
            hint=f"`hermes tools enable {args.toolset} --everywhere` takes it out.",
        )
    set_value(home, ("platform_toolsets", args.platform), _with_name(named, args.toolset, there=offer))
    set_value(home, ("known_plugin_toolsets", args.platform), plugins)
    print(f"{args.toolset} is {'offered' if offer else 'no longer offered'} on {args.platform}.")
    return EXIT_OK


def _with_name(names: list[str], name: str, *, there: bool) -> list[str]:
    rest = [other for other in names if other != name]
    return [*rest, name] if there else rest
