"""`hermes plugins` alone: a checklist of the plugins at a terminal, elsewhere the list. Source: contract §1.13."""

from __future__ import annotations

import argparse

from hermes_agent.app.cli.plugins.asking import is_interactive
from hermes_agent.app.cli.plugins.ground import InstalledPlugins
from hermes_agent.app.cli.plugins.listing import run_list
from hermes_agent.app.cli.plugins.showing import printable
from hermes_agent.app.cli.plugins.switching import switch_off, switch_on
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, UserError

__all__ = ["choose_plugins", "run_checklist"]

OFF = ("disabled", "not enabled")
"""States of plugins whose box is empty; one that waits for a variable or a grant is on."""


def run_checklist(args: argparse.Namespace) -> int:
    """Let the person tick the plugins that are to run, and switch those whose box changed; 1 when one could not be."""
    if not is_interactive():
        return run_list(argparse.Namespace(json=False, plain=False, enabled=False, user=False, no_bundled=False))
    here = InstalledPlugins()
    plugins = here.found.plugins
    if not plugins:
        print(f"No plugins. Those of this home go to {here.home}/plugins/.")
        return EXIT_OK
    before = {key for key, manifest in plugins.items() if here.activation(manifest)[0].status not in OFF}
    labels = {key: f"{key}: {m.description}" if m.description else key for key, m in sorted(plugins.items())}
    after = choose_plugins({key: printable(label) for key, label in labels.items()}, before)
    if after is None or after == before:
        print("Nothing is changed.")
        return EXIT_OK
    status = EXIT_OK
    for key in sorted(before ^ after):
        try:
            if key in after:
                switch_on(InstalledPlugins(), key)
            else:
                switch_off(InstalledPlugins(), key)
        except UserError as error:  # the others are switched all the same
            print(f"{key}: {error}")
            status = EXIT_FAILED
    return status


def choose_plugins(labels: dict[str, str], ticked: set[str]) -> set[str] | None:
    """Show the boxes and return the keys of those that are ticked in the end; None when the person gave up.

    Args:
        labels: what stands behind each box, by key.
        ticked: the keys that are ticked at first.
    """
    from prompt_toolkit.shortcuts import checkboxlist_dialog  # 100 ms to import, and only at a terminal

    chosen = checkboxlist_dialog(
        title="Plugins",
        text="Space ticks, Tab goes to Ok; Cancel leaves all as it is. A change holds from the next start on.",
        values=list(labels.items()),
        default_values=sorted(ticked),
    ).run()
    return None if chosen is None else set(chosen)
