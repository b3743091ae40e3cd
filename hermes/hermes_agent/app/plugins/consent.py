"""Consent to the capabilities of plugins, and `hermes plugins capabilities`.

A consent adds to `granted_capabilities` of the plugin's entry, records what was declared at that time
(`capabilities_consent`), and sets the older switch of each capability. Without a terminal nothing is granted. Source:
plugin contract of 0.23 §4.5.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from hermes_agent.app.cli.command import print_json
from hermes_agent.app.plugins.home import InstalledPlugins
from hermes_agent.app.plugins.terminal_io import confirm, is_interactive, printable, table
from hermes_agent.core.errors import EXIT_OK, UserError
from hermes_agent.plugins.capabilities import (
    CAPABILITIES,
    consent_hash,
    describe_capability,
    is_granted,
    is_known_capability,
)
from hermes_agent.plugins.manifest import PluginManifest


def known_capabilities(manifest: PluginManifest) -> list[str]:
    """Return the declared capabilities that exist; print a warning for each other one, which is dropped."""
    known = []
    for name in dict.fromkeys(map(str, manifest.capabilities)):
        if is_known_capability(name):
            known.append(name)
        else:
            print(f"warning: {manifest.key} declares the unknown capability {printable(name)!r}; it is dropped.")
    return known


def missing_capabilities(here: InstalledPlugins, manifest: PluginManifest) -> list[str]:
    """Return the declared capabilities that are not granted."""
    entry = here.settings.entry(manifest)
    return [name for name in known_capabilities(manifest) if not is_granted(entry, name)]


def declared_rows(manifest: PluginManifest) -> list[tuple[str, str]]:
    """Return a table row for each declared capability, for the display before an installation."""
    return [("asks for", f"{name}: {describe_capability(name)}") for name in known_capabilities(manifest)]


def declared_changes(before: PluginManifest, now: PluginManifest, entry: Mapping[str, Any]) -> list[str]:
    """Return a line for each capability that only the new (`+`) or old (`-`) version declares."""
    old, new = set(map(str, before.capabilities)), set(map(str, now.capabilities))
    lines = [f"  + asks for {printable(name)}: {describe_capability(name)}" for name in sorted(new - old)]
    for name in sorted(old - new):
        still = "; it stays granted until you withdraw it" if is_granted(entry, name) else ""
        lines.append(f"  - no longer asks for {printable(name)}{still}")
    return lines


def ask_for_capabilities(here: InstalledPlugins, manifest: PluginManifest) -> None:
    """Show the capabilities that a plugin asks for and lacks, and grant those to which the user agrees."""
    missing = missing_capabilities(here, manifest)
    if not missing:
        return
    print(f"{manifest.key} asks for permissions that it does not have:")
    print("\n".join(table([(name, describe_capability(name)) for name in missing])))
    if not is_interactive():
        print(f"None is granted, since no user can be asked: `hermes plugins capabilities {manifest.key} --grant ID`.")
        return
    agreed = [name for name in missing if confirm(f"Grant {printable(name)}?")]
    if agreed:
        grant(here, manifest, agreed)
        print(f"Granted: {', '.join(map(printable, agreed))}.")
    if len(agreed) < len(missing):
        print(f"It goes without the others; `hermes plugins capabilities {manifest.key} --grant ID` grants one later.")


def grant(here: InstalledPlugins, manifest: PluginManifest, names: Collection[str]) -> None:
    """Write the consent to capabilities into the config.

    Raises:
        UserError: the config cannot be changed; on NixOS the message names the option.
    """
    entry = here.settings.entry(manifest)
    present = entry.get("granted_capabilities")
    granted = sorted({*(present if isinstance(present, list) else ()), *names})
    consent = {
        "hash": consent_hash(map(str, manifest.capabilities)),
        "granted_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    _write(
        here,
        manifest,
        {("granted_capabilities",): granted, ("capabilities_consent",): consent, **_switches(names, True)},
    )


def withdraw(here: InstalledPlugins, manifest: PluginManifest, names: Collection[str]) -> None:
    """Remove grants of capabilities from the config, with their older switches.

    Raises:
        UserError: the config cannot be changed.
    """
    entry = here.settings.entry(manifest)
    present = entry.get("granted_capabilities")
    left = [name for name in (present if isinstance(present, list) else ()) if name not in names]
    on = [name for name in names if is_granted({**entry, "granted_capabilities": []}, name)]
    _write(here, manifest, {("granted_capabilities",): left, **_switches(on, False)})


def _switches(names: Iterable[str], value: bool) -> dict[tuple[str, ...], bool]:
    return {CAPABILITIES[name]: value for name in names if name in CAPABILITIES}


def _write(here: InstalledPlugins, manifest: PluginManifest, values: Mapping[tuple[str, ...], Any]) -> None:
    from hermes_agent.config.edit import set_value  # loads the editor of the config

    for path, value in values.items():
        set_value(here.home, ("plugins", "entries", manifest.key, *path), value, environ=os.environ)
    here.reload_settings()


def run_capabilities(args: argparse.Namespace) -> int:
    """Show what plugins ask for and what they have; grant or withdraw capabilities of one."""
    here = InstalledPlugins()
    if not args.name and (args.grant or args.revoke):
        raise UserError("--grant and --revoke need the name of a plugin")
    if args.name:
        manifest = here.find(args.name)
        _change(here, manifest, args.grant, args.revoke)
        shown: Sequence[PluginManifest] = [manifest]
    else:
        shown = [m for _, m in sorted(here.found.plugins.items()) if m.capabilities or _granted(here, m)]
    about = {manifest.key: _describe(here, manifest) for manifest in shown}
    if args.json:
        print_json(about)
        return EXIT_OK
    if not about:
        print("No plugin asks for a capability, and none is granted.")
    for key, capabilities in about.items():
        print(key if capabilities else f"{key} asks for no capability, and none is granted.")
        print("\n".join(table([(name, _state_text(name, one)) for name, one in capabilities.items()])))
        if consent := _consent_text(here, here.found.plugins[key]):
            print(f"  {consent}")
    return EXIT_OK


def _change(here: InstalledPlugins, manifest: PluginManifest, added: Sequence[str], removed: Sequence[str]) -> None:
    for name in added:
        if not is_known_capability(name):
            known = ", ".join(CAPABILITIES)
            raise UserError(
                f"there is no capability {name!r}",
                hint=f"There are {known}, and network:HOST, secret:NAME, tool:NAME, files.read:PATH, files.write:PATH.",
            )
    missing = [name for name in removed if not is_granted(here.settings.entry(manifest), name)]
    if missing:
        raise UserError(f"{manifest.key} does not have the capability {missing[0]!r}")
    if added:
        grant(here, manifest, added)
    if removed:
        withdraw(here, manifest, removed)


def _granted(here: InstalledPlugins, manifest: PluginManifest) -> list[str]:
    entry = here.settings.entry(manifest)
    listed = entry.get("granted_capabilities")
    named = map(str, listed if isinstance(listed, list) else ())
    return list(dict.fromkeys((*named, *(name for name in CAPABILITIES if is_granted(entry, name)))))


def _describe(here: InstalledPlugins, manifest: PluginManifest) -> dict[str, dict[str, Any]]:
    entry = here.settings.entry(manifest)
    declared = [name for name in map(str, manifest.capabilities) if is_known_capability(name)]
    return {
        name: {"declared": name in declared, "granted": bool(is_granted(entry, name)), "by": is_granted(entry, name)}
        for name in dict.fromkeys((*declared, *_granted(here, manifest)))
    }


def _consent_text(here: InstalledPlugins, manifest: PluginManifest) -> str:
    """Return when the last consent was given, and whether the plugin asks for something else since; or ""."""
    consent = here.settings.entry(manifest).get("capabilities_consent")
    if not isinstance(consent, Mapping) or not consent.get("granted_at"):
        return ""
    is_same = consent.get("hash") == consent_hash(map(str, manifest.capabilities))
    since = "" if is_same else "; since then the plugin asks for others"
    return printable(f"last consent: {consent['granted_at']}{since}")


def _state_text(name: str, state: Mapping[str, Any]) -> str:
    words = f"granted ({state['by']})" if state["granted"] else "not granted"
    return f"{words}{'' if state['declared'] else ', not declared'}: {describe_capability(name)}"
