"""`hermes plugins explain`: why a plugin runs, or does not."""

from __future__ import annotations

import argparse

from hermes_agent.app.cli.command import loaded_host
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK
from hermes_agent.plugins.explain import explain_plugin

__all__ = ["run_explain"]


def run_explain(args: argparse.Namespace) -> int:
    """Print the answer; 1 when it does not run."""
    with loaded_host() as host:
        plugins = host.plugins
        record = plugins.find(args.name)
        tally = host.account.usage_of(record.manifest.key if record else "")
        said = explain_plugin(args.name, plugins.records, plugins.rejected, plugins.unknown, tally)
    print(said)
    return EXIT_OK if said.is_available else EXIT_FAILED
