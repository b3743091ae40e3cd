"""`hermes plugins enable` and `disable`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from hermes_agent.app.cli.plugins.asking import agrees
from hermes_agent.app.cli.plugins.ground import HomePlugins
from hermes_agent.core.errors import EXIT_OK

__all__ = ["offer_to_enable", "run_disable", "run_enable", "switch_off", "switch_on"]


def run_enable(args: argparse.Namespace) -> int:
    """Enable a plugin, and pin its files when nothing of it was granted before."""
    switch_on(HomePlugins(), args.name, allow_tool_override=args.allow_tool_override)
    return EXIT_OK


def run_disable(args: argparse.Namespace) -> int:
    """Disable a plugin; its pin stays."""
    switch_off(HomePlugins(), args.name)
    return EXIT_OK


def switch_off(here: HomePlugins, name: str) -> None:
    """Disable a plugin.

    Raises:
        UserError: there is none of that name, or the config cannot be changed.
    """
    _switch(here, name, on=False)


def switch_on(here: HomePlugins, name: str, *, allow_tool_override: bool | None = None) -> None:
    """Enable a plugin and say what still keeps it from running.

    Raises:
        UserError: there is none of that name, or the config cannot be changed.
    """
    _switch(here, name, on=True, allow_tool_override=allow_tool_override)
    here.renew_settings()
    manifest = here.find(name)
    if here.trust.judge(manifest, here.settings).state == "new":
        here.trust.pin(manifest, by="enable")
        here.trust.save()
    gate, _ = here.gate(manifest)
    if gate.reason:
        print(f"It will not run yet: {gate.reason}")


def offer_to_enable(key: str, args: argparse.Namespace) -> None:
    """Enable the plugin when that was asked for, or when the person agrees."""
    wanted = args.enable
    if wanted is None:
        wanted = args.yes or agrees(f"Enable {key}?")
    if wanted:
        switch_on(HomePlugins(), key)
    else:
        print(f"It is not enabled: `hermes plugins enable {key}` lets it run.")


def _switch(here: HomePlugins, name: str, *, on: bool, allow_tool_override: bool | None = None) -> None:
    from hermes_agent.plugins.enabling import switch  # the config's editor

    done = switch(
        here.home,
        name,
        on=on,
        settings=here.settings,
        environ=os.environ,
        cwd=Path.cwd(),
        allow_tool_override=allow_tool_override,
    )
    key = done.manifest.key
    word = "enabled" if on else "disabled"
    if not done.changed:
        print(f"{key} is {word} already.")
    else:
        print(f"{key} is {word} from the next start on; a running daemon keeps what it has until then.")
