"""`ctx.register_command`, `ctx.register_cli_command`, and `cli.py` of the memory plugin that is used.

Source: plugin contract §7, §8.3.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hermes_agent.commands import normalise_name
from hermes_agent.contracts.cli_command import CLI_COMMAND, CliCommand
from hermes_agent.contracts.command import COMMAND
from hermes_agent.core.registry import BUILTIN, Conflict
from hermes_agent.core.subcommands import SUBCOMMANDS
from hermes_agent.plugins.registering.registrant import Registration, add_once

__all__ = ["register_cli_command", "register_command", "register_memory_cli"]

logger = logging.getLogger(__name__)

CLI_MARK = "def register_cli("
"""What a memory plugin's `cli.py` has that brings a command; it is imported when the command is asked for."""


def register_command(
    by: Registration, ctx: Any, name: str, handler: Callable[..., Any], *, description: str, args_hint: str
) -> None:
    """Register a slash command; `ctx` is the first argument of a handler that asks for two."""
    if not callable(handler):
        raise TypeError(f"the handler of command {name!r} is {handler!r}: expected something that can be called")
    if _required_arguments(handler) == 2:
        handler = partial(handler, ctx)
    key = normalise_name(name)
    try:
        taken = by.services.commands.register(
            name, handler, plugin=by.key, description=description, args_hint=args_hint
        )
    except Conflict as exc:
        by.refused(COMMAND.label, f"/{key}", exc.owner)
        return
    if taken:
        add_once(by.record.commands_registered, key)
    elif key:
        by.refused(COMMAND.label, f"/{key}", BUILTIN, log=False)
    else:
        by.note("a slash command without a name was not registered")


def register_cli_command(by: Registration, command: CliCommand) -> None:
    """Register a terminal command."""
    if not callable(command.setup_fn):
        raise TypeError(
            f"the setup_fn of {command.name!r} is {command.setup_fn!r}: expected something that can be called"
        )
    key = command.name.strip()
    if not key or key.startswith("-"):
        logger.warning("Plugin '%s' tried to register the terminal command %r.", by.name, command.name)
        by.note(f"the terminal command {command.name!r} has no usable name and was not registered")
        return
    if key in SUBCOMMANDS:
        by.refused(CLI_COMMAND.label, f"hermes {key}", BUILTIN)
        return
    try:
        by.services.cli_commands.add(key, command, owner=by.key)
    except Conflict as exc:
        by.refused(CLI_COMMAND.label, f"hermes {key}", exc.owner)
        return
    add_once(by.record.cli_commands_registered, key)


def _required_arguments(handler: Callable[..., Any]) -> int:
    """Return how many positional arguments `handler` must be given; 1 when it cannot be told."""
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):  # a built-in without a signature
        return 1
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is p.empty for p in parameters)


def register_memory_cli(by: Registration, loaded: Any) -> None:
    """Register the terminal command of a memory plugin whose `cli.py` has `register_cli(subparser)`.

    The command has the name of the plugin's folder. `register_cli` is given its parser; `<name>_command(args)` runs
    it where the parser does not say what does.

    Args:
        loaded: the plugin's module, or the object that its entry point names.
    """
    module = _cli_module(by, loaded)
    name = by.manifest.folder or by.manifest.name
    if not module or by.services.cli_commands.owner(name) == by.key:
        return
    about = by.manifest.description
    command = CliCommand(
        name, about or f"Manage {name} memory plugin", partial(_set_up_parser, module, name), None, about
    )
    register_cli_command(by, command)


def _cli_module(by: Registration, loaded: Any) -> str:
    """Return the name of the plugin's module `cli`; empty when it has none that brings a command."""
    own = by.manifest.path.partition(":")[0].strip() if by.manifest.source == "entrypoint" else loaded.__name__
    package = getattr(sys.modules.get(own), "__package__", "") or ""
    if not package:
        return ""
    name = f"{package}.cli"
    try:
        spec = importlib.util.find_spec(name)
        text = Path(spec.origin).read_text("utf-8", "replace") if spec is not None and spec.origin else ""
    except (ImportError, OSError, ValueError) as exc:
        logger.warning("Plugin '%s': %s cannot be read: %s", by.name, name, exc)
        return ""
    return name if CLI_MARK in text else ""


def _set_up_parser(module: str, name: str, parser: argparse.ArgumentParser) -> None:
    cli: Any = importlib.import_module(module)
    # some take it for the whole of `hermes`, and add themselves to it
    vars(parser)["add_parser"] = partial(_return_parser, parser)
    cli.register_cli(parser)
    handler = getattr(cli, f"{name.replace('-', '_')}_command", None)
    if callable(handler) and parser.get_default("func") is None:
        parser.set_defaults(func=handler)


def _return_parser(parser: argparse.ArgumentParser, name: str, **kwargs: Any) -> argparse.ArgumentParser:
    parser.description = kwargs.get("description") or kwargs.get("help") or parser.description
    return parser
