"""`hermes memory setup|status|off`: the memory provider, and the agent's own notes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.app.cli.command import JSON, Args, CliSubcommand, argument, loaded_host, print_json
from hermes_agent.config import hermes_home, load
from hermes_agent.core.errors import EXIT_OK, UserError

if TYPE_CHECKING:
    from hermes_agent.host import Host
    from hermes_agent.memory.setup import SetupField

__all__ = ["add_memory"]

MEMORY_KEY = ("memory", "provider")

memory_command = CliSubcommand("memory", "choose and set up what remembers across sessions")
add_memory = memory_command.add


@memory_command.action(
    "setup",
    "choose a memory provider and give it what it needs",
    argument("name", metavar="NAME", nargs="?", default="", help="which; without it the list is shown"),
    argument(
        "--set",
        dest="given",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting that is then not asked for; `KEY=-` reads it from standard input",
    ),
)
def _set_up_memory(args: Args) -> None:
    from hermes_agent.config.edit import set_value  # with YAML, for those who change something
    from hermes_agent.memory.setup import configure_provider

    home = hermes_home()
    known = _known_memories(home)
    name = args.name or _choose_memory(sorted(known))
    if name not in known:
        names = ", ".join(sorted(known)) or "none"
        raise UserError(
            f"there is no memory provider {name!r}; these are: {names}", hint="`hermes plugins install` brings more."
        )
    before = load(home).get("memory.provider")
    set_value(home, MEMORY_KEY, name)
    try:
        with loaded_host() as host:
            provider = _memory_provider(host)
            configure_provider(provider, home, _ask_field, _save_value, _parse_values(args.given))
            available = provider.is_available()
    except BaseException:
        set_value(home, MEMORY_KEY, before or "")
        raise
    print(f"memory.provider is {name}. A running daemon uses it after a restart.")
    if not available:
        print(f"{name} says that it is not available yet: `hermes memory status` shows what it lacks.")


@memory_command.action("status", "which provider is used, what it lacks, and the agent's own notes", JSON)
def _memory_status(args: Args) -> int:
    from hermes_agent.memory.notes import FILES, Notes, NoteSettings, notes_folder
    from hermes_agent.memory.setup import setup_fields

    home = hermes_home()
    with loaded_host() as host:
        get = host.config.get
        name = get("memory.provider")
        limits = NoteSettings(*(get(f"memory.{n}") for n in NoteSettings._fields)).limits()
        report: dict[str, Any] = {"provider": name or None, "known": sorted(_known_memories(home))}
        choice = host.providers.choose("memory", host.config.values)
        if choice.provider is not None:
            fields = setup_fields(choice.provider)
            lacks = [f.env_var or f.key for f in fields if f.required and f.env_var and not f.is_set]
            report |= {"plugin": host.providers["memory"].owner(choice.provider.name), "lacks": lacks}
            report["available"] = bool(choice.provider.is_available())
        elif name:
            report |= {"available": False, "why": choice.reason}
    notes = Notes(notes_folder(home, ""), limits)
    report["notes"] = {FILES[t]: notes.usage(t, notes.entries(t)) for t in limits}
    if args.json:
        return print_json(report)
    print(f"provider: {name}, {'available' if report['available'] else 'not available'}" if name else "provider: none")
    for line in (report.get("why"), *(f"it lacks {lack}" for lack in report.get("lacks", ()))):
        if line:
            print(f"  {line}")
    print(f"there are: {', '.join(report['known']) or 'none'}")
    for file, usage in report["notes"].items():
        print(f"memories/{file}: {usage}")
    return EXIT_OK


@memory_command.action("off", "use no provider; what it knows stays where it is")
def _turn_memory_off(args: Args) -> None:
    from hermes_agent.config.edit import set_value  # as in _setup

    home = hermes_home()
    before = load(home).get("memory.provider")
    if not before:
        print("No memory provider is used.")
        return
    set_value(home, MEMORY_KEY, "")
    print(f"{before} is not used any more, from the next start on. What it knows stays where it is.")


def _known_memories(home: Path) -> dict[str, str]:
    """Return the memory plugins that could be chosen, with their descriptions; none of them is imported."""
    from hermes_agent.plugins.discovery import BUNDLED, discover
    from hermes_agent.plugins.manifest import read_manifest
    from hermes_agent.plugins.memory_folder import add_every_memory_folder, bundled_memories

    manifests = [
        read_manifest(str(f / "plugin.yaml"), source=BUNDLED, category="memory") for f in bundled_memories().values()
    ]
    found = discover(home, os.environ, Path.cwd())
    add_every_memory_folder(found, home, "")
    manifests += [m for m in found.plugins.values() if m.kind == "exclusive"]
    return {manifest.folder or manifest.name: manifest.description for manifest in manifests}


def _memory_provider(host: Host) -> Any:
    choice = host.providers.choose("memory", host.config.values)
    if choice.provider is None:
        failed = [r for r in host.plugins.records if r.manifest.kind == "exclusive" and r.error and not r.enabled]
        said = "; ".join(f"{r.manifest.key}: {r.error}" for r in failed if r.status == "failed")
        raise UserError(
            f"the memory provider was not loaded: {said or choice.reason}", hint="`hermes plugins doctor` says more."
        )
    return choice.provider


def _choose_memory(names: list[str]) -> str:
    if not sys.stdin.isatty():
        raise UserError("which memory provider?", hint=f"hermes memory setup NAME, one of: {', '.join(names)}")
    for number, name in enumerate(names, 1):
        print(f"  {number}. {name}")
    answer = input("Which one? ").strip()
    return names[int(answer) - 1] if answer.isdigit() and 0 < int(answer) <= len(names) else answer


def _parse_values(pairs: list[str]) -> dict[str, str]:
    given = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign:
            raise UserError(f"--set {pair}: expected KEY=VALUE")
        given[key.strip()] = sys.stdin.readline().strip() if value == "-" else value
    return given


def _ask_field(field: SetupField) -> str:
    if not sys.stdin.isatty():
        return field.default
    import getpass

    about = f" ({field.url})" if field.url else ""
    choices = f" [{', '.join(field.choices)}]" if field.choices else ""
    default = " [kept]" if field.is_set else f" [{field.default}]" if field.default else ""
    prompt = f"{field.description}{about}{choices}{default}: "
    answer = getpass.getpass(prompt) if field.secret else input(prompt)
    return answer.strip() or ("" if field.is_set else field.default)


def _save_value(name: str, value: str) -> None:
    from hermes_agent.compat.settings import save_env_value

    save_env_value(name, value)
