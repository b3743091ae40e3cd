"""`cli.py` of the memory plugin that is used: `hermes NAME …`. Source: plugin contract §7.4, §8.3."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import logging
import sys
from functools import partial
from pathlib import Path
from typing import Any

from hermes_agent.contracts.cli_command import CliCommand
from hermes_agent.plugins.registering.commands import register_cli_command
from hermes_agent.plugins.registering.registrant import Registrant

__all__ = ["register_memory_cli"]

logger = logging.getLogger(__name__)

MARK = "def register_cli("
"""What a `cli.py` has that brings a command; it is imported when the command is asked for."""


def register_memory_cli(by: Registrant, loaded: Any) -> None:
    """Register the terminal command of a memory plugin whose `cli.py` has `register_cli(subparser)`.

    The command has the name of the plugin's folder. `register_cli` is given its parser; `<name>_command(args)` runs
    it where the parser does not say what does.

    Args:
        loaded: the plugin's module, or the object that its entry point names.
    """
    module = _cli_module(by, loaded)
    name = by.manifest.folder or by.manifest.name
    if not module or by.ground.cli_commands.owner(name) == by.key:
        return
    about = by.manifest.description
    command = CliCommand(name, about or f"Manage {name} memory plugin", partial(_set_up, module, name), None, about)
    register_cli_command(by, command)


def _cli_module(by: Registrant, loaded: Any) -> str:
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
    return name if MARK in text else ""


def _set_up(module: str, name: str, parser: argparse.ArgumentParser) -> None:
    cli: Any = importlib.import_module(module)
    # some take it for the whole of `hermes`, and add themselves to it
    vars(parser)["add_parser"] = partial(_itself, parser)
    cli.register_cli(parser)
    handler = getattr(cli, f"{name.replace('-', '_')}_command", None)
    if callable(handler) and parser.get_default("func") is None:
        parser.set_defaults(func=handler)


def _itself(parser: argparse.ArgumentParser, name: str, **kwargs: Any) -> argparse.ArgumentParser:
    parser.description = kwargs.get("description") or kwargs.get("help") or parser.description
    return parser
