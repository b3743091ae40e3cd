"""`hermes config`: show, get, set, unset, path, check."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.app.cli.command import JSON, Args, CliSubcommand, argument, print_json
from hermes_agent.core.errors import EXIT_CONFIG, EXIT_OK, ConfigError, UserError

if TYPE_CHECKING:
    from hermes_agent.config import ConfigFinding
    from hermes_agent.config.check import ConfigReport
    from hermes_agent.host import Host
    from hermes_agent.plugins.discovery import Discovery


command = CliSubcommand("config", "show, change and check the config")
add_config = command.add


@command.action(
    "check",
    "check a file, or all the files of the home (exit status 78: errors)",
    argument("file", nargs="?", metavar="FILE", help="config or .env file; without it the home's files"),
    argument("--strict", action="store_true", help="refuse undeclared keys"),
    JSON,
    argument("--label", default="", help="name for the findings in place of FILE and its lines"),
)
def _check(args: Args) -> int:
    from hermes_agent.app.manifest_cache import declared_schema, find_plugins
    from hermes_agent.config import hermes_home  # the config and YAML load for commands that need them
    from hermes_agent.config.check import check_file, check_home

    found = find_plugins(hermes_home())
    schema = declared_schema(hermes_home(), found)
    if args.file is None:
        report = check_home(hermes_home(), strict=args.strict, schema=schema)
        if report.is_valid and (certain := _find_certain_unknown_names(found)) is not None:
            _add(report, certain)
        elif report.is_valid:
            _add_unknown_names(report)
    else:
        report = check_file(Path(args.file), strict=args.strict, label=args.label, schema=schema)
        if report.is_valid and report.unit == "key":
            _add_unknown_names(report, Path(args.file), args.label)
    if report.is_valid and (args.file is None or report.unit == "key"):
        _add(report, _find_denied_webhooks(args.file, args.label))
    if args.json:
        print_json(report.as_json())
    else:
        print(report)
    return EXIT_OK if report.is_valid else EXIT_CONFIG


def _find_denied_webhooks(file: str | None, label: str) -> list[ConfigFinding]:
    """Return an error for each webhook of `hooks.outbound` to a host that the table of hosts denies.

    Args:
        file: checked in place of the config of the home.
        label: its name in the findings.
    """
    from hermes_agent.config import ConfigFinding, hermes_home, load  # as in _check
    from hermes_agent.config.yaml_reader import read_file

    values = load(hermes_home()).values if file is None else read_file(Path(file)).value
    from hermes_agent.config.settings import Settings

    settings = Settings(values)
    entries = settings.hooks.outbound
    if not isinstance(entries, list) or not entries:
        return []
    from hermes_agent.policy.network import HostTables  # asyncio: few homes have webhooks

    denied = HostTables(lambda: settings).current().why_denied
    return [
        ConfigFinding(label or file or "", None, None, key, f"`{key}`: {why}", "error")
        for number, entry in enumerate(entries)
        if isinstance(entry, dict) and entry.get("url") and (why := denied(str(entry["url"])))
        for key in [f"hooks.outbound[{number}].url"]
    ]


def _find_certain_unknown_names(found: Discovery, values: dict[str, Any] | None = None) -> list[ConfigFinding] | None:
    """Return the names in the config that are certainly unknown, or None if only loaded plugins can tell.

    Args:
        found: the plugins of the home.
        values: checked in place of the config of the home.
    """
    from hermes_agent.config import hermes_home, load  # as in _check
    from hermes_agent.plugins.activation import PluginSettings
    from hermes_agent.plugins.config_schema import find_certain_unknown_names
    from hermes_agent.plugins.discovery import add_memory_folder

    config = load(hermes_home())
    add_memory_folder(found, hermes_home(), PluginSettings.of(config.values).memory)
    return find_certain_unknown_names(config, found, values)


def _add_unknown_names(report: ConfigReport, file: Path | None = None, label: str = "") -> None:
    """Add unknown names to the findings; plugins are loaded, since they bring names.

    Args:
        file: checked in place of the config of the home.
        label: its name in the findings, which then have no lines.
    """
    from hermes_agent.config import ConfigFinding, hermes_home, home_paths  # as in _check
    from hermes_agent.config.yaml_reader import read_file
    from hermes_agent.plugins.config_names import find_unknown_names, find_unknown_names_in_file

    own = file is not None and file.resolve() == home_paths(hermes_home()).editable.resolve()
    try:
        with _host_of_home() as host:
            if file is None:
                found = find_unknown_names(host)
            elif own:
                found = [
                    finding for finding in find_unknown_names(host) if Path(finding.file).resolve() == file.resolve()
                ]
            else:
                found = find_unknown_names_in_file(host, read_file(file, label or str(file)))
            if label:
                found = [finding._replace(file=label, line=None, column=None) for finding in found]
    except UserError as error:  # the home is not the configured one, or is read-only
        if isinstance(error, ConfigError) and (file is None or own):  # the daemon does not start with it
            report.errors.append(ConfigFinding("", None, None, "", error.message, "error"))
        else:
            report.notes.append(ConfigFinding("", None, None, "", f"names are not checked: {error.message}", "warning"))
        return
    _add(report, found)


def _add(report: ConfigReport, found: list[ConfigFinding]) -> None:
    report.errors += [finding for finding in found if finding.level == "error"]
    report.notes += [finding for finding in found if finding.level != "error"]


@contextlib.contextmanager
def _host_of_home() -> Iterator[Host]:
    """Yield a host with the plugins of the home, or with the bundled ones if the home is missing."""
    import asyncio  # as in _check
    import tempfile

    from hermes_agent.app.cli.command import loaded_host
    from hermes_agent.config import hermes_home

    if hermes_home().exists():
        with loaded_host() as host:
            yield host
        return
    from hermes_agent.app.manifest_cache import quiet_or_debug
    from hermes_agent.host import Host

    quiet_or_debug(os.environ)
    with tempfile.TemporaryDirectory(prefix="hermes-check-") as empty:
        host = Host.build(Path(empty))
        try:
            host.load_plugins()
            yield host
        finally:
            asyncio.run(host.aclose())


def _items(value: Any) -> Iterable[tuple[str, Any]]:
    return value.items() if isinstance(value, dict) else ()


def _check_names(path: tuple[str | int, ...], values: dict[str, Any]) -> None:
    """Reject a value with an unknown name.

    Raises:
        ConfigError: a name is unknown.
    """
    from hermes_agent.app.manifest_cache import find_plugins  # as in _check
    from hermes_agent.config import hermes_home
    from hermes_agent.config.schema import find_names, has_names
    from hermes_agent.config.yaml_document import config_error

    if path[:1] == ("network",):
        from hermes_agent.config.settings import Settings
        from hermes_agent.policy.network import HostTable  # as in _check

        lists = {key: value for key, value in _items(values["network"]) if isinstance(value, list)}
        HostTable.of(Settings({"network": lists}))
    if not (has_names(path) and any(find_names(values))):
        return
    try:
        found = _find_certain_unknown_names(find_plugins(hermes_home()), values)
        if found is None:
            from hermes_agent.app.cli.command import loaded_host
            from hermes_agent.plugins.config_names import find_unknown_names

            with loaded_host() as host:
                found = find_unknown_names(host, values)
    except UserError as error:
        print(f"names are not checked: {error.message}", file=sys.stderr)
        return
    if errors := [finding for finding in found if finding.level == "error"]:
        raise config_error(errors)
    for finding in found:
        print(finding, file=sys.stderr)


@command.action(
    "show",
    "print the config in effect, secrets masked",
    JSON,
    argument("--origin", action="store_true", help="print a line per key, with the layer that decides it"),
    argument("--changed", action="store_true", help="leave out the defaults"),
)
def _show(args: Args) -> None:
    from hermes_agent.app.manifest_cache import declared_schema  # as in _check
    from hermes_agent.config import hermes_home, load
    from hermes_agent.config.effective import dump_yaml, masked
    from hermes_agent.config.schema import render_path, walk

    config = load(hermes_home())
    value = masked(config, changed=args.changed, schema=declared_schema(config.path.parent))
    if args.origin:
        leaves = [(path, item) for path, item in walk(value) if path]
        keys = [([p for p in path if isinstance(p, str)], path, item) for path, item in leaves]
        lines = [(render_path(path), _flow(item), config.origin(tuple(names))) for names, path, item in keys]
        if args.json:
            print_json(
                [{"key": key, "value": item, "origin": o} for (key, _, o), (_, item) in zip(lines, leaves, strict=True)]
            )
        else:
            for key, text, origin in lines:
                print(f"{key} = {text}  # {origin}")
    elif args.json:
        print_json(value)
    else:
        print(dump_yaml(value), end="")


@command.action(
    "get",
    "print the value of a key, secrets masked",
    argument("key", metavar="KEY", help="dotted path, such as agent.max_turns"),
    JSON,
)
def _get(args: Args) -> int:
    from hermes_agent.app.manifest_cache import declared_schema  # as in _check
    from hermes_agent.config import hermes_home, load
    from hermes_agent.config.effective import dump_yaml, masked
    from hermes_agent.config.schema import MISSING, default, lookup

    config = load(hermes_home())
    path = _key(args.key)
    schema = declared_schema(hermes_home())
    value = masked(config, path, schema=schema)
    if value is MISSING and (node := lookup(path, schema)):
        value = default(node)
    if value is MISSING:
        try:
            value = config.get(args.key, MISSING)
        except KeyError as error:
            raise UserError(str(error.args[0])) from None
        if value is MISSING:
            raise UserError(f"`{args.key}` is not set and has no default")
    if args.json:
        return print_json(value)
    if isinstance(value, dict | list):
        print(dump_yaml(value) or "{}", end="" if value else "\n")
    else:
        print(value if isinstance(value, str) else _flow(value))
    return EXIT_OK


@command.action(
    "set",
    "set a key; the file keeps its comments and order",
    argument("key", metavar="KEY", help="dotted path, or the NAME of a variable, which goes to .env"),
    argument("value", metavar="VALUE", help="YAML: 5, true, text, [a, b]"),
)
def _set(args: Args) -> None:
    from hermes_agent.app.manifest_cache import declared_schema  # as in _check
    from hermes_agent.config import hermes_home, home_paths
    from hermes_agent.config.check import keys_without_effect
    from hermes_agent.config.dotenv import write_env_value
    from hermes_agent.config.edit import parse_value, set_value
    from hermes_agent.config.schema import OPEN, is_secret, lookup, nested, render_path
    from hermes_agent.config.yaml_document import ConfigDocument, config_error
    from hermes_agent.core.secrecy import MASK

    home = hermes_home()
    if _is_variable(args.key):
        file = home_paths(home).env
        write_env_value(file, args.key, args.value)
        print(f"{args.key} = {MASK} ({file})")
        return
    path = _key(args.key)
    schema = declared_schema(home)
    value = parse_value(path, args.value, schema)
    idle = keys_without_effect(ConfigDocument("", nested(path, value)))
    if errors := [finding for finding in idle if finding.level == "error"]:
        raise config_error(errors)
    _check_names(path, nested(path, value))
    file = set_value(home, path, value, schema=schema)
    secret = is_secret(path, schema)
    print(f"{render_path(path)} = {MASK if secret else _flow(value)} ({file})")
    if secret:
        print(f"the value stands in plain text in {file}; `.env` or a credential is a better place", file=sys.stderr)
    elif path[:2] == ("skills", "config"):
        print("`hermes skills settings` shows the skill that reads it")
    elif lookup(path, schema) is OPEN:
        owner = (lookup(path[:-1], schema) or {}).get("x-owner")
        whose = f"not a key that plugin `{owner}` declares" if owner else "not ours; it is kept for plugins"
        print(f"`{render_path(path)}` is {whose}", file=sys.stderr)
    for finding in idle:
        print(finding, file=sys.stderr)


@command.action(
    "unset",
    "remove a key; its default applies again",
    argument("key", metavar="KEY", help="dotted path, or the NAME of a variable in .env"),
)
def _unset(args: Args) -> None:
    from hermes_agent.config import hermes_home, home_paths  # as in _check
    from hermes_agent.config.dotenv import read_env_file, write_env_value
    from hermes_agent.config.edit import unset_value
    from hermes_agent.config.schema import render_path

    home = hermes_home()
    if _is_variable(args.key):
        file = home_paths(home).env
        if args.key not in read_env_file(file):
            raise UserError(f"{args.key} is not set in {file}")
        write_env_value(file, args.key, None)
        print(f"{args.key} removed ({file})")
        return
    path = _key(args.key)
    file = unset_value(home, path)
    print(f"{render_path(path)} removed ({file})")


@command.action("path", "print the file that `set` changes")
def _path(args: Args) -> None:
    from hermes_agent.config import hermes_home, home_paths  # as in _check

    print(home_paths(hermes_home()).editable)


def _key(text: str) -> tuple[str | int, ...]:
    from hermes_agent.config.schema import parse_path  # as in _check

    try:
        return parse_path(text)
    except ValueError as error:
        raise UserError(str(error)) from None


def _is_variable(key: str) -> bool:
    """Say whether a key is the name of an environment variable, such as OPENAI_API_KEY."""
    return key.isupper() and key.replace("_", "").isalnum() and not key[:1].isdigit()


def _flow(value: Any) -> str:
    """Return a value in one line, in the form that `set` accepts."""
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False, default=str)
