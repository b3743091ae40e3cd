"""The variables and packages that a plugin wants: asked for, stored, or named."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hermes_agent.app.cli.plugins.asking import ask_text, is_interactive
from hermes_agent.app.cli.plugins.ground import InstalledPlugins
from hermes_agent.app.cli.plugins.showing import printable
from hermes_agent.config import home_paths
from hermes_agent.config.dotenv import write_env_value
from hermes_agent.plugins.installing.needs import missing_packages, missing_variables, requirement_hint
from hermes_agent.plugins.manifest import PluginManifest

__all__ = ["ask_for_variables", "name_missing_packages"]


def ask_for_variables(here: InstalledPlugins, manifest: PluginManifest, *, may_ask: bool) -> None:
    """Ask for each variable of `requires_env` without a value and store it in `.env`; without a person name them."""
    missing = missing_variables(manifest, here.secrets)
    if not missing:
        return
    where = home_paths(here.home)
    if where.declared is not None:
        names = ", ".join(v.name for v in missing)
        print(f"It wants {names}: give it with services.hermes-agent.credentials or environmentFiles.")
        return
    left = []
    for variable in missing:
        value = ""
        if may_ask and is_interactive():
            print(f"It wants {variable.name}{printable(f': {variable.description}') if variable.description else ''}")
            if variable.url:
                print(f"  Get one at {printable(variable.url)}")
            value = ask_text(f"  {variable.name} (empty: later)", hidden=variable.secret)
        if value:
            write_env_value(where.env, variable.name, value)
            print(f"  {variable.name} is stored in {where.env}.")
        else:
            left.append(variable.name)
    for name in left:
        print(f"It wants {name}: `hermes config set {name} VALUE` stores it in {where.env}.")


def name_missing_packages(here: InstalledPlugins, requirements: Sequence[str]) -> None:
    """Name the Python packages that the manifest wants and that are not there, with what adds them."""
    missing = missing_packages(requirements)
    if missing:
        print(f"It wants Python packages that are not installed beside the agent: {', '.join(map(printable, missing))}")
        print(f"  {requirement_hint(missing, here.home)}", file=sys.stdout)
