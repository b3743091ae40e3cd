"""`hermes tools`: which tools there are, why one is or is not, and which of them a platform is offered."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK

if TYPE_CHECKING:
    from hermes_agent.host import Host

__all__ = ["add", "loaded_host"]


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("tools", help="list the tools, and say why one is or is not there")
    commands = parser.add_subparsers(prog=parser.prog, dest="tools_command", metavar="COMMAND", required=True)

    listing = commands.add_parser("list", aliases=["ls"], help="show every tool, its toolset and its owner")
    listing.add_argument("--json", action="store_true", help="print a list of objects")
    _platform(listing)
    listing.set_defaults(run=_list)

    explain = commands.add_parser("explain", help="say why the model is shown a tool, or is not (exit status 1)")
    explain.add_argument("name", metavar="NAME", help="name of the tool")
    _platform(explain)
    explain.set_defaults(run=_explain)

    info = commands.add_parser("info", help="show what the model is told of a tool, or the tools of a toolset")
    info.add_argument("name", metavar="NAME", help="name of a tool or a toolset")
    info.add_argument("--json", action="store_true", help="print the definition")
    info.set_defaults(run=_info)

    for name, text, run in (
        ("enable", "offer a toolset on a platform", _enable),
        ("disable", "offer a toolset on a platform no more", _disable),
    ):
        action = commands.add_parser(name, help=text)
        action.add_argument("toolset", metavar="TOOLSET", help="see `hermes tools list`")
        place = action.add_mutually_exclusive_group()
        _platform(place)
        place.add_argument("--everywhere", action="store_true", help="for all platforms (agent.disabled_toolsets)")
        action.set_defaults(run=run)


def _platform(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--platform", metavar="NAME", default="cli", help="cli (default), api_server, telegram, cron, …"
    )


@contextmanager
def loaded_host() -> Iterator[Host]:
    """Give a host whose plugins are loaded as at a start, and end it afterwards."""
    from hermes_agent.app.start import start_host  # the plugins: nothing else of this module needs them

    host = start_host()
    try:
        yield host
    finally:
        asyncio.run(host.aclose())


def _list(args: argparse.Namespace) -> int:
    from hermes_agent.plugins.explain import tool_rows  # with the plugins

    with loaded_host() as host:
        rows = tool_rows(host.tools, host.toolsets, args.platform)
    if args.json:
        print(json.dumps([row._asdict() for row in rows], indent=2, ensure_ascii=False))
        return EXIT_OK
    cells = [("NAME", "TOOLSET", "OWNER", "STATE"), *rows]
    widths = [max(len(line[column]) for line in cells) for column in range(3)]
    for line in cells:
        print("  ".join([*(c.ljust(w) for c, w in zip(line, widths, strict=False)), line[3]]).rstrip())
    return EXIT_OK


def _explain(args: argparse.Namespace) -> int:
    from hermes_agent.plugins.explain import explain_tool  # with the plugins

    with loaded_host() as host:
        said = explain_tool(args.name, host.tools, host.toolsets, host.plugins.records, args.platform)
    print(said)
    return EXIT_OK if said.there else EXIT_FAILED


def _info(args: argparse.Namespace) -> int:
    from hermes_agent.core.errors import UserError

    with loaded_host() as host:
        entry = host.tools.get(args.name)
        toolset = None if entry is not None else host.toolsets.get(args.name)
        tools = host.toolsets.resolve(args.name)
    if entry is None and toolset is None:
        raise UserError(f"there is no tool or toolset {args.name!r}", hint="`hermes tools list` shows those that are.")
    if entry is None:
        print(json.dumps(toolset, indent=2) if args.json else f"toolset {args.name}: {', '.join(tools)}")
        return EXIT_OK
    if args.json:
        print(json.dumps(entry.schema, indent=2, ensure_ascii=False))
        return EXIT_OK
    print(f"{entry.name} (toolset {entry.toolset})\n{entry.description}")
    parameters = entry.schema.get("parameters") or {}
    required = parameters.get("required") or ()
    for name, spec in (parameters.get("properties") or {}).items():
        kind = spec.get("type", "any") if isinstance(spec, dict) else "any"
        about = spec.get("description", "") if isinstance(spec, dict) else ""
        print(f"  {name}{'' if name in required else ' (optional)'}: {kind}  {about}".rstrip())
    return EXIT_OK


def _enable(args: argparse.Namespace) -> int:
    return _change(args, offer=True)


def _disable(args: argparse.Namespace) -> int:
    return _change(args, offer=False)


def _change(args: argparse.Namespace, *, offer: bool) -> int:
    from hermes_agent.config.edit import set_value
    from hermes_agent.core.errors import UserError
    from hermes_agent.core.registry import BUILTIN

    with loaded_host() as host:
        if not host.toolsets.exists(args.toolset):
            known = ", ".join(host.toolsets.names())
            raise UserError(f"there is no toolset {args.toolset!r}", hint=f"Toolsets: {known}.")
        disabled = list(host.config.get("agent.disabled_toolsets") or ())
        toolset_of = host.tools.get_tool_to_toolset_map()
        named = host.config.get(f"platform_toolsets.{args.platform}")
        if named is None:
            named = sorted({toolset_of[tool] for tool in host.toolsets.offered(args.platform)})
            named = [name for name in named if not name.startswith("mcp-")]
        plugins = sorted({toolset_of[tool] for tool in host.tools.names() if host.tools.owner(tool) != BUILTIN})
        home = host.home
    if args.everywhere:
        set_value(home, ("agent", "disabled_toolsets"), _with(disabled, args.toolset, there=not offer))
        print(f"{args.toolset} is {'no longer disabled' if offer else 'disabled'} on every platform.")
        return EXIT_OK
    if offer and args.toolset in disabled:
        raise UserError(
            f"{args.toolset!r} is in agent.disabled_toolsets",
            hint=f"`hermes tools enable {args.toolset} --everywhere` takes it out.",
        )
    set_value(home, ("platform_toolsets", args.platform), _with(named, args.toolset, there=offer))
    set_value(home, ("known_plugin_toolsets", args.platform), plugins)
    print(f"{args.toolset} is {'offered' if offer else 'no longer offered'} on {args.platform}.")
    return EXIT_OK


def _with(names: list[str], name: str, *, there: bool) -> list[str]:
    rest = [other for other in names if other != name]
    return [*rest, name] if there else rest
