"""`hermes plugins check`: load every plugin in an empty home, and report what would fail at run time.

The agent's own loader loads them, in a child process, since a plugin may hang, crash or call `os._exit`. Variables
of `requires_env` get placeholder values. Plugins are loaded whether or not they are enabled: everything that a build
declares must load.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from hermes_agent.app.manifest_cache import quiet_or_debug
from hermes_agent.app.plugins.check_report import (
    CheckFinding,
    PluginCheckReport,
    describe_plugin,
    load_findings,
    rejection_finding,
)
from hermes_agent.config.yaml_document import ConfigFinding as ConfigFinding
from hermes_agent.core.errors import EXIT_FAILED, EXIT_OK, UserError
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.plugins.activation import Activation, PluginSettings, decide_activation
from hermes_agent.plugins.closure import canonical
from hermes_agent.plugins.discovery import BUNDLED, DECLARED, Discovery, PluginRoot, discover, is_plugin_folder
from hermes_agent.plugins.entry_points import find_entry_points
from hermes_agent.plugins.host_services import HostServices
from hermes_agent.plugins.manager import PluginManager
from hermes_agent.plugins.manifest import PluginManifest

if TYPE_CHECKING:
    from hermes_agent.config import ConfigFinding
    from hermes_agent.host import Host


ProgressReport = Callable[[str], None]
"""Report the current activity; the time limit starts again with each report."""


@lazy_dataclass(frozen=True, slots=True)
class ChildDied:
    """The child process ended without a result."""

    activity: str
    """The last reported activity, or "" if there was none."""
    cause: str
    """For example `exit status 3`, `signal SIGSEGV` or `no progress within 60 s`."""


def run_in_child(work: Callable[[ProgressReport], Any], *, limit_s: float) -> Any | ChildDied:
    """Call `work` in a child process; return its result (JSON types), or how the child ended without one.

    The child's standard output goes to standard error, since what a plugin prints is not a result of the check.

    Args:
        limit_s: longest time between two progress reports of the child, in seconds.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _child(work, writer)
    os.close(writer)
    try:
        doing, result, late = _listen(reader, limit_s)
    finally:
        os.close(reader)
    if late:
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if result is not None:
        return result["result"]
    if late:
        return ChildDied(doing, f"no progress within {limit_s:g} s")
    return ChildDied(doing, f"exit status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}")


def _child(work: Callable[[ProgressReport], Any], writer: int) -> None:
    status = 70
    try:
        os.dup2(2, 1)
        os.set_inheritable(writer, False)

        def send(message: dict[str, Any]) -> None:
            data = json.dumps(message).encode() + b"\n"
            while data:
                data = data[os.write(writer, data) :]

        send({"result": work(lambda doing: send({"doing": doing}))})
        status = 0
    except BaseException:  # noqa: BLE001 - the child must not return into the parent's code
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # threads of plugins must not keep the process alive


def _listen(reader: int, limit_s: float) -> tuple[str, dict[str, Any] | None, bool]:
    doing, buffer = "", b""
    deadline = time.monotonic() + limit_s
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return doing, None, True
        data = os.read(reader, 65536)
        if not data:
            return doing, None, False
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "result" in message:
                return doing, message, False
            doing, deadline = message["doing"], time.monotonic() + limit_s


LOAD_LIMIT_S = 60.0
"""Longest time for importing and registering one plugin, in seconds."""
PLACEHOLDER = "placeholder-of-plugins-check"
REMOVED = (
    "HERMES_SAFE_MODE",
    "HERMES_ENABLE_PROJECT_PLUGINS",
    "HERMES_DECLARED_CONFIG",
    "CREDENTIALS_DIRECTORY",
    "NOTIFY_SOCKET",
)
"""Environment variables that would change what is checked."""


class CheckedHost(HostServices, Protocol):
    """A host with a plugin manager that has loaded nothing yet."""

    @property
    def plugins(self) -> PluginManager: ...


OpenHost = Callable[[Path], CheckedHost]
"""Build the host of a home, with the built-in tools and commands, and serve upstream's import names."""


NameCheck = Callable[[Any], Iterable[ConfigFinding]]
"""Return findings for names in the config of an opened host that nothing has registered."""


def check(
    directories: Sequence[Path],
    open_host: OpenHost,
    *,
    config: Path | None = None,
    misnamed: NameCheck = lambda _: (),
    limit_s: float = LOAD_LIMIT_S,
) -> PluginCheckReport:
    """Check the bundled and declared plugins, the entry points, and `directories`.

    Args:
        directories: plugins, or folders of plugins.
        config: a config file; its section `plugins` says which plugins are disabled and which may override tools.
        misnamed: checks the names in the config after all plugins are loaded.
        limit_s: time limit for each plugin, in seconds.

    Raises:
        UserError: a directory has no plugin, or `config` cannot be read.
    """
    roots = [_root(directory) for directory in directories]
    home = Path(tempfile.mkdtemp(prefix="hermes-plugins-check-"))
    try:
        if config is not None:
            _copy(config, home / "config.yaml")
        outcome = run_in_child(lambda tell: _work(home, roots, open_host, misnamed, tell), limit_s=limit_s)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if isinstance(outcome, ChildDied):
        culprit = f"plugin `{outcome.activity}`" if outcome.activity else "the check"
        text = f"{culprit} ended the process while it was loaded: {outcome.cause}"
        if outcome.cause.startswith("no progress"):
            text = f"{culprit} did not finish loading: {outcome.cause}"
        owners = (outcome.activity,) if outcome.activity else ()
        return PluginCheckReport((), (CheckFinding("error", "failed", text, owners),))
    return read_outcome(outcome)


def read_outcome(outcome: dict[str, Any]) -> PluginCheckReport:
    """Return the report that another process wrote.

    Raises:
        UserError: the other process reported a user error, or its output is not a report.
    """
    if "user_error" in outcome:
        raise UserError(outcome["user_error"], exit_status=outcome["exit_status"])
    try:
        return PluginCheckReport.from_json(outcome)
    except (KeyError, TypeError, AttributeError) as exc:
        raise UserError(f"a plugin spoiled the report of the check: {exc!r}") from exc


def check_directories(directories: Iterable[Path]) -> None:
    """Raise UserError if a directory has no plugin."""
    for directory in directories:
        _root(directory)


def _work(
    home: Path, roots: list[PluginRoot], open_host: OpenHost, misnamed: NameCheck, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Load all plugins and return the report as JSON types; runs in the child process."""
    enter_empty_home(home)
    try:
        host = open_host(home)
    except UserError as exc:
        return {"user_error": str(exc), "exit_status": exc.exit_status}
    host.plugins.isolates = False
    found = discover(home, os.environ, home, extra=roots)
    for name in {name for manifest in found.plugins.values() for name in manifest.env_names}:
        if "=" not in name and "\0" not in name:
            os.environ.setdefault(name, PLACEHOLDER)
    settings = PluginSettings.of(host.config.values)

    def gate(manifest: PluginManifest) -> Activation:
        tell(manifest.key)
        return _gate(manifest, settings)

    host.plugins.load(found, gate)
    tell("")
    return _report(host, found, misnamed).to_json()


def _gate(manifest: PluginManifest, settings: PluginSettings) -> Activation:
    """Activate every plugin that is not disabled: a build knows neither what is enabled nor the secrets."""
    everything = PluginSettings(
        (*settings.enabled, manifest.key), settings.disabled, entries=settings.entries, memory=manifest.key
    )
    return decide_activation(manifest, everything, lambda name: True)


def _report(host: CheckedHost, found: Discovery, misnamed: NameCheck) -> PluginCheckReport:
    manager = host.plugins
    findings = list(_platform_checks(host))  # first, since this loads deferred platforms
    findings += [rejection_finding(r, found) for r in found.rejected]
    findings += load_findings(manager.records)
    findings += package_findings()
    for unknown in manager.unknown:
        text = f"plugins.enabled: {unknown.text}"
        findings.append(CheckFinding("error" if unknown.nearest else "warning", "unknown", text, (unknown.name,)))
    for wrong in misnamed(host):
        if not wrong.key_path.startswith("plugins.enabled"):  # reported above
            level: Literal["error", "warning"] = "error" if wrong.level == "error" else "warning"
            findings.append(CheckFinding(level, "unknown", wrong.message, ()))
    others = (
        r for r in manager.records if r.manifest.source != BUNDLED
    )  # bundled plugins are checked when the agent is built
    return PluginCheckReport(tuple(describe_plugin(r) for r in others), tuple(findings))


def _platform_checks(host: CheckedHost) -> Iterable[CheckFinding]:
    """Yield a warning for each platform with a failing availability check.

    The gateway would never connect such a platform.
    """
    for entry in host.platforms.all_entries():
        available = host.platforms.availability(entry.name)
        if available.failed:
            key = host.platforms.owner(entry.name) or ""
            text = f"plugin `{key}`: platform `{entry.name}` is never available: {available.reason}"
            yield CheckFinding("warning", "platform", text, (key,))


def enter_empty_home(home: Path) -> None:
    """Make `home` the home of this process, without the variables of another one."""
    for name in REMOVED:
        os.environ.pop(name, None)
    os.environ.update(HOME=str(home), HERMES_HOME=str(home))
    os.chdir(home)
    quiet_or_debug(os.environ)  # the report has what the loader logs


def _root(directory: Path) -> PluginRoot:
    place = directory.absolute()
    if not place.is_dir():
        raise UserError(f"{directory} is not a directory", hint="Name folders that have a plugin.yaml.")
    if not is_plugin_folder(place) and not any(is_plugin_folder(p) for p in _children(place)):
        raise UserError(
            f"{directory} has no plugin.yaml at its root",
            hint="A directory plugin has plugin.yaml and __init__.py at its root.",
        )
    return PluginRoot(DECLARED, place)


def _children(place: Path) -> Iterable[Path]:
    for child in sorted(place.iterdir()):
        if child.is_dir():
            yield child
            yield from (p for p in sorted(child.iterdir()) if p.is_dir())


def _copy(source: Path, target: Path) -> None:
    try:
        target.write_bytes(source.read_bytes())
    except OSError as exc:
        raise UserError(f"cannot read {source}: {exc.strerror}") from exc


AGENT = "hermes-agent"


class _Installed(LazyNamedTuple):
    name: str
    """Canonical name."""
    version: str
    place: str
    """The directory of the import path that has the package."""
    distribution: Distribution

    @property
    def label(self) -> str:
        """Return the line that names the package in a finding."""
        return f"{self.name} {self.version}  {self.place}"


def package_findings(path: Sequence[str] | None = None) -> list[CheckFinding]:
    """Return conflicts between Python packages, by the rules of `plugins.closure`.

    A conflict is an error if it concerns the agent or the package of a plugin, else a warning.

    Args:
        path: import path with the packages; None means `sys.path`.
    """
    places = sys.path if path is None else path
    installed = list(_installed(places))
    concerned = {AGENT, *(canonical(e.distribution.split(" ")[0]) for e in find_entry_points(places))}
    return [*_duplicate_versions(installed, concerned), *_overwritten_files(installed, concerned)]


def _installed(places: Iterable[str]) -> Iterator[_Installed]:
    for place in dict.fromkeys(str(Path(p or ".").resolve()) for p in places):
        for distribution in distributions(path=[place]):
            name = distribution.metadata["Name"]
            if name:
                yield _Installed(canonical(name), distribution.version, place, distribution)


def _duplicate_versions(installed: list[_Installed], concerned: set[str]) -> Iterator[CheckFinding]:
    """Yield packages that are installed in more than one version; Python imports the first on the path."""
    by_name: dict[str, list[_Installed]] = {}
    for item in installed:
        by_name.setdefault(item.name, []).append(item)
    for name, items in sorted(by_name.items()):
        if len({item.version for item in items}) > 1:
            yield CheckFinding(
                "error" if name in concerned else "warning",
                "Python package",
                f"the Python package `{name}` is there in {len(items)} versions, and the first is imported:",
                details=tuple(item.label for item in items),
                hint=f"uninstall the one that is not meant: python -m pip uninstall {name}",
                name=name,
            )


def _overwritten_files(installed: list[_Installed], concerned: set[str]) -> Iterator[CheckFinding]:
    """Yield import names for which several packages have the same file; the last install overwrote it."""
    owners: dict[tuple[str, str], dict[str, _Installed]] = {}
    for item in installed:
        for file in item.distribution.files or ():
            if file.suffix in (".py", ".so", ".pyd") and ".." not in file.parts and "__pycache__" not in file.parts:
                owners.setdefault((item.place, str(file)), {})[item.name] = item
    fights: dict[tuple[str, ...], tuple[_Installed, ...]] = {}
    for (_, brought), items in owners.items():
        if len(items) > 1:
            top, names = brought.split("/")[0].partition(".")[0], sorted(items)
            fights.setdefault((top, *names), tuple(items[name] for name in names))
    for (top, *names), fighting in sorted(fights.items()):
        yield CheckFinding(
            "error" if concerned & set(names) else "warning",
            "import name",
            f"the import name `{top}` belongs to {len(names)} Python packages that brought the same files:",
            details=tuple(item.label for item in fighting),
            hint="the one that was installed last is imported; uninstall the other and install the meant one again, "
            "or have its author rename the module",
            name=top,
        )


def run_check(args: argparse.Namespace) -> int:
    """Load the plugins in the sandbox with an empty home, and print the findings."""
    if args.report:
        _write(Path(args.report), json.dumps(_outcome(args)))
        return EXIT_OK
    report = _check_here(args) if args.no_sandbox else _check_in_sandbox(args)
    document = report.document(strict=args.strict)
    if args.out:
        _write(Path(args.out), document)
    if args.json:
        print(document, end="")
    text = report.render(strict=args.strict)
    if text:
        print(text, file=sys.stderr)
    if report.errors(strict=args.strict):
        return EXIT_FAILED
    if not args.json:
        print(f"{len(report.plugins)} plugin(s) checked, no conflicts.")
    return EXIT_OK


def report_on(folder: Path, *, sandbox: bool) -> dict[str, Any]:
    """Return what `plugins.json` says of one plugin: its registrations, errors, warnings and conflicts."""
    args = argparse.Namespace(directories=[str(folder)], config=None)
    report = _check_in_sandbox(args) if sandbox else _check_here(args)
    document: dict[str, Any] = json.loads(report.document(strict=False))
    return document


def _check_in_sandbox(args: argparse.Namespace) -> PluginCheckReport:
    """Check in the sandbox, and copy what the plugins print to standard error."""
    from hermes_agent.app.plugins.check_report import check_in_sandbox

    check_directories([Path(directory) for directory in args.directories])
    looked = check_in_sandbox(
        [str(Path(directory).absolute()) for directory in args.directories], config=args.config or ""
    )
    sys.stderr.write(looked.output)
    if looked.outcome is None:
        raise UserError(f"the check in the sandbox failed: {looked.how}")
    return read_outcome(looked.outcome)


def _outcome(args: argparse.Namespace) -> dict[str, Any]:
    """Check without a sandbox, and return the report or the user error as JSON types."""
    try:
        return _check_here(args).to_json()
    except UserError as exc:
        return {"user_error": str(exc), "exit_status": exc.exit_status}


def _check_here(args: argparse.Namespace) -> PluginCheckReport:

    return check(
        [Path(directory) for directory in args.directories],
        open_host,
        config=Path(args.config) if args.config else None,
        misnamed=_unknown_names,
    )


def _unknown_names(host: Host) -> list[ConfigFinding]:
    from hermes_agent.plugins.config_names import find_unknown_names  # after the fork, as in `open_host`

    return find_unknown_names(host)


def open_host(home: Path) -> Host:
    """Build the host of an empty home, and serve upstream's import names."""
    from hermes_agent.compat import import_hook  # both after the fork, so that the parent stays small
    from hermes_agent.host import Host

    host = Host.build(home)
    import_hook.install()
    return host


def _write(path: Path, text: str) -> None:
    from hermes_agent.system.files import write_atomic

    try:
        write_atomic(path, text)
    except OSError as exc:
        raise UserError(f"cannot write {path}: {exc.strerror}") from exc
