"""The variables and packages that a plugin wants: asked for, stored, or named."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hermes_agent.app.cli.plugins.asking import is_somebody_there, typed
from hermes_agent.app.cli.plugins.ground import HomePlugins
from hermes_agent.app.cli.plugins.showing import plain
from hermes_agent.config import places
from hermes_agent.config.dotenv import write_env_value
from hermes_agent.plugins.installing.needs import how_to_add, missing_packages, missing_variables
from hermes_agent.plugins.manifest import PluginManifest

__all__ = ["ask_for_variables", "name_missing_packages"]


def ask_for_variables(here: HomePlugins, manifest: PluginManifest, *, may_ask: bool) -> None:
    """Ask for each variable of `requires_env` without a value and store it in `.env`; without a person name them."""
    missing = missing_variables(manifest, here.secrets)
    if not missing:
        return
    where = places(here.home)
    if where.declared is not None:
        names = ", ".join(v.name for v in missing)
        print(f"It wants {names}: give it with services.hermes-agent.credentials or environmentFiles.")
        return
    left = []
    for variable in missing:
        value = ""
        if may_ask and is_somebody_there():
            print(f"It wants {variable.name}{plain(f': {variable.description}') if variable.description else ''}")
            if variable.url:
                print(f"  Get one at {plain(variable.url)}")
            value = typed(f"  {variable.name} (empty: later)", hidden=variable.secret)
        if value:
            write_env_value(where.env, variable.name, value)
            print(f"  {variable.name} is stored in {where.env}.")
        else:
            left.append(variable.name)
    for name in left:
        print(f"It wants {name}: `hermes config set {name} VALUE` stores it in {where.env}.")


def name_missing_packages(here: HomePlugins, requirements: Sequence[str]) -> None:
    """Name the Python packages that the manifest wants and that are not there, with what adds them."""
    missing = missing_packages(requirements)
    if missing:
        print(f"It wants Python packages that are not installed beside the agent: {', '.join(map(plain, missing))}")
        print(f"  {how_to_add(missing, here.home)}", file=sys.stdout)
