"""`hermes tools` and `hermes mcp`.

`tools` lists tools, explains why a tool is offered or not, and enables toolsets. `mcp` manages `mcp_servers`.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hermes_agent.app.cli.command import (
    JSON,
    Args,
    CliSubcommand,
    activity,
    argument,
    ensure_home,
    exclusive,
    loaded_host,
    print_json,
    print_rows,
)
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, UserError

if TYPE_CHECKING:
    from hermes_agent.host import Host
    from hermes_agent.mcp.servers import McpServers
    from hermes_agent.mcp.settings import McpServerSettings


tools_command = CliSubcommand("tools", "list the tools, and explain why a tool is available or not")
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
    from hermes_agent.app.plugins.info import tool_rows  # with the plugins

    with loaded_host() as host:
        with activity("connecting to the MCP servers"):
            _servers(host).wait_connected(SERVERS_S)
        rows = tool_rows(host.tools, host.toolsets, args.platform)
    if args.json:
        return print_json([row._asdict() for row in rows])
    print_rows([("NAME", "TOOLSET", "OWNER", "STATE"), *rows])
    return EXIT_OK


@tools_command.action(
    "explain",
    "explain whether the model gets a tool, and why (exit status 1: it does not)",
    argument("name", metavar="NAME", help="name of the tool"),
    PLATFORM,
    JSON,
)
def _explain_tool(args: Args) -> int:
    from hermes_agent.app.plugins.info import explain_tool  # with the plugins

    with loaded_host() as host:
        _connect_servers(host, args.name, "mcp__")
        said = explain_tool(args.name, host.tools, host.toolsets, host.plugins.records, args.platform)
    if args.json:
        print_json({"name": args.name, "is_available": said.is_available, "why": list(said.lines)})
    else:
        print(said)
    return EXIT_OK if said.is_available else EXIT_FAILED


@tools_command.action(
    "info",
    "show the schema of a tool, or the tools of a toolset",
    argument("name", metavar="NAME", help="name of a tool or a toolset"),
    JSON,
)
def _tool_info(args: Args) -> int:
    with loaded_host() as host:
        _connect_servers(host, args.name, "mcp")
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


@tools_command.action("disable", "stop offering a toolset on a platform", TOOLSET, PLACE)
def _disable_toolset(args: Args) -> int:
    return _change_toolset(args, offer=False)


def _change_toolset(args: Args, *, offer: bool) -> int:
    from hermes_agent.config.edit import set_value
    from hermes_agent.core.registry import BUILTIN

    with loaded_host() as host:
        if not host.toolsets.exists(args.toolset):
            known = ", ".join(host.toolsets.names())
            raise UserError(f"there is no toolset {args.toolset!r}", hint=f"Toolsets: {known}.")
        disabled = list(host.config.settings.agent.disabled_toolsets)
        toolset_of = host.tools.get_tool_to_toolset_map()
        named = host.config.settings.platform_toolsets.get(args.platform)
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


mcp_command = CliSubcommand("mcp", "manage servers of the Model Context Protocol")
add_mcp = mcp_command.add

SERVER_NAME = argument("name", metavar="NAME", help="name of the server in mcp_servers")


@mcp_command.action("list", "show the servers of the config", JSON, aliases=["ls"])
def _list_servers(args: Args) -> int:
    rows = [(one.name, _transport(one), _server_state(one), one.location) for one in _read_servers().values()]
    if args.json:
        return print_json([dict(zip(("name", "transport", "state", "where"), row, strict=True)) for row in rows])
    print_rows([("NAME", "TRANSPORT", "STATE", "PROGRAM OR ADDRESS"), *rows])
    return EXIT_OK


def _transport(one: McpServerSettings) -> str:
    return "stdio" if one.command else "sse" if one.sse else "http"


def _connect_servers(host: Host, name: str, prefix: str) -> None:
    """Connect the MCP servers if a name with the prefix may be one of theirs."""
    if name.startswith(prefix):
        with activity("connecting to the MCP servers"):
            _servers(host).wait_connected(SERVERS_S)


def _servers(host: Host) -> McpServers:
    from hermes_agent.mcp.servers import McpServers  # with the plugins

    return host.service(McpServers)


def _server_state(one: McpServerSettings) -> str:
    return one.problem or ("on" if one.enabled else "off")


@mcp_command.action("test", "connect to a server and show its tools (exit status 1: it failed)", SERVER_NAME, JSON)
def _test_server(args: Args) -> int:
    with loaded_host() as host:
        server = _find_server(args.name, _servers(host).settings)  # those of portable packages, too
        started = time.monotonic()
        with activity(f"connecting to {server.name}"):
            _servers(host).wait_connected(server.connect_timeout_s, only=server.name)
        status = next(one for one in _servers(host).status() if one.name == server.name)
        took_s = time.monotonic() - started
    if status.state != "connected":
        raise UserError(f"{server.name} cannot be used: {status.error or status.state}")
    if args.json:
        return print_json({"name": server.name, "seconds": round(took_s, 3), "tools": list(status.tools)})
    print(f"{server.name}: connected within {took_s:.1f} s, {len(status.tools)} tools")
    for tool in status.tools:
        print(f"  {tool}")
    return EXIT_OK


@mcp_command.action(
    "add",
    "add a server to the config",
    SERVER_NAME,
    argument("--url", default="", help="address of an HTTP server"),
    argument("--sse", action="store_true", help="the server uses the older protocol with server-sent events"),
    argument("--header", metavar="NAME=VALUE", action="append", default=[], help="header of each request; repeatable"),
    argument("--oauth", action="store_true", help="the server uses OAuth; sign in with `hermes mcp login`"),
    argument(
        "--env",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="variable of the program; ${NAME} takes a value of .env",
    ),
    argument(
        "--command", dest="program", metavar="LINE", default="", help="a program and its arguments, as in a shell"
    ),
)
def _add_server(args: Args) -> int:
    from hermes_agent.config.edit import set_value

    if bool(args.url) == bool(args.program):
        raise UserError(
            "Name an address (--url), or a program (--command).",
            hint="hermes mcp add files --command 'mcp-server-files /srv/files'",
            exit_status=EXIT_USAGE,
        )
    words = shlex.split(args.program)
    server: dict[str, Any] = {"url": args.url} if args.url else {"command": words[0], "args": words[1:]}
    server |= {
        "headers": _parse_pairs(args.header),
        "env": _parse_pairs(args.env),
        "auth": "oauth" if args.oauth else "",
    }
    server["transport"] = "sse" if args.sse else ""
    home = ensure_home()
    if args.name in _read_servers():
        raise UserError(f"there is an MCP server {args.name!r} already", hint=f"`hermes mcp remove {args.name}`")
    file = set_value(home, ("mcp_servers", args.name), {k: v for k, v in server.items() if v})
    print(f"{args.name} is in {file}. `hermes mcp test {args.name}` tries it; {RELOAD_HINT}")
    return EXIT_OK


@mcp_command.action("remove", "remove a server from the config, and delete its sign-in", SERVER_NAME, aliases=["rm"])
def _remove_server(args: Args) -> int:
    from hermes_agent.config.edit import unset_value
    from hermes_agent.mcp.http_transport import TokenStore

    server = _find_server(args.name)
    file = unset_value(ensure_home(), ("mcp_servers", args.name))
    TokenStore(ensure_home(), server).path.unlink(missing_ok=True)
    print(f"{args.name} is removed from {file}; {RELOAD_HINT}")
    return EXIT_OK


@mcp_command.action(
    "login",
    "sign in to a server (auth: oauth)",
    SERVER_NAME,
    argument("--no-open", action="store_true", help="print the address and open no browser"),
)
def _login_server(args: Args) -> int:
    import asyncio  # most commands need neither the library nor the sign-in

    from hermes_agent.app.cli.model import show_address
    from hermes_agent.config import load
    from hermes_agent.mcp import sdk
    from hermes_agent.mcp.http_transport import sign_in
    from hermes_agent.policy.network import HostTables

    server = _find_server(args.name)
    if server.oauth is None or not server.url:
        key = f"mcp_servers.{server.name}"
        raise UserError(
            f"the server {server.name} has no sign-in", hint=f"Set `{key}.url`, and `{key}.auth` to `oauth`."
        )
    if not sdk.is_installed():
        raise UserError(sdk.mcp_install_hint())
    settings = load(ensure_home()).settings
    tables = HostTables(lambda: settings)
    asyncio.run(sign_in(server, ensure_home(), lambda url: show_address(url, opens=not args.no_open), tables))
    print(f"Signed in at {server.name}; {RELOAD_HINT}")
    return EXIT_OK


RELOAD_HINT = "a daemon that runs takes it over with `hermes gateway reload`."


def _parse_pairs(given: list[str]) -> dict[str, str]:
    for pair in given:
        if "=" not in pair:
            raise UserError(f"{pair!r} is no NAME=VALUE", exit_status=EXIT_USAGE)
    return dict(pair.split("=", 1) for pair in given)


def _read_servers() -> dict[str, McpServerSettings]:
    from hermes_agent.config import load  # the config and YAML load for commands that need them
    from hermes_agent.mcp.settings import servers_of

    return servers_of(load(ensure_home()).settings.mcp_servers)


def _find_server(name: str, servers: Mapping[str, McpServerSettings] | None = None) -> McpServerSettings:
    servers = _read_servers() if servers is None else servers
    if name not in servers:
        known = ", ".join(sorted(servers)) or "none"
        raise UserError(f"there is no MCP server {name!r} in the config", hint=f"There are: {known}.")
    return servers[name]
