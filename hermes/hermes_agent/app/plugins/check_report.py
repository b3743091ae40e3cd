"""Report of `hermes plugins check` as text and as `plugins.json`, and the check in the sandbox.

The sandbox is the one of the tool `terminal` (`workspace.sandbox.bubblewrap`), with an empty home, without secrets
and without network. It shows the plugins, what programs need, and the directories that Python imports from.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import hermes_agent
from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.registry import BUILTIN
from hermes_agent.plugins.discovery import Discovery, RejectedPlugin
from hermes_agent.plugins.loader import NOT_INSTALLED
from hermes_agent.plugins.plugin_record import LoadedPlugin, RegistrationProblem
from hermes_agent.plugins.plugin_state import report_loaded
from hermes_agent.system.processes import CommandResult, run, tool_environment

if TYPE_CHECKING:
    from hermes_agent.workspace.sandbox.bubblewrap import BubblewrapSandbox
    from hermes_agent.workspace.sandbox.limits import CommandLimits


VERSION = 1
PREFIX = "hermes-agent: "


@lazy_dataclass(frozen=True, slots=True)
class CheckFinding:
    """One error or warning."""

    level: Literal["error", "warning"]
    kind: str
    """Of a conflict: `plugin`, `tool`, `slash command`, `terminal command`, …; else `manifest`, `failed`, …"""
    text: str
    """One sentence; that of a conflict ends with a colon, and `details` lists the owners."""
    owners: tuple[str, ...] = ()
    """Keys of the plugins concerned."""
    details: tuple[str, ...] = ()
    """Additional lines: each owner with its path."""
    hint: str = ""
    name: str = ""
    """The name in conflict; "" if the finding is not a conflict."""

    @property
    def is_conflict(self) -> bool:
        """Return True if two owners claim the same name."""
        return bool(self.name)

    def render(self, level: str) -> str:
        """Return the printed text; its first line starts with `level`."""
        lines = [f"{level}: {PREFIX}{self.text}", *(f"  {detail}" for detail in self.details)]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


@lazy_dataclass(frozen=True, slots=True)
class PluginCheckReport:
    """The checked plugins and all findings."""

    plugins: tuple[dict[str, Any], ...]
    findings: tuple[CheckFinding, ...]

    def errors(self, *, strict: bool) -> list[CheckFinding]:
        """Return the findings that make the check fail; with `strict` these include warnings."""
        return _ordered(f for f in self.findings if strict or f.level == "error")

    def warnings(self, *, strict: bool) -> list[CheckFinding]:
        """Return the findings that do not make the check fail."""
        return [] if strict else _ordered(f for f in self.findings if f.level == "warning")

    def render(self, *, strict: bool) -> str:
        """Return all findings as text, errors first; "" if there are none."""
        errors = [finding.render("error") for finding in self.errors(strict=strict)]
        return "\n".join(errors + [finding.render("warning") for finding in self.warnings(strict=strict)])

    def document(self, *, strict: bool) -> str:
        """Return the text of `plugins.json`; it does not depend on the order in which plugins were found."""
        errors = self.errors(strict=strict)
        value = {
            "version": VERSION,
            "plugins": sorted(self.plugins, key=lambda p: (p["key"], p["path"])),
            "conflicts": [_conflict(f) for f in errors if f.is_conflict],
            "errors": [f.text for f in errors if not f.is_conflict],
            "warnings": [f.text for f in self.warnings(strict=strict)],
        }
        return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON types, for `from_json`."""
        return {"plugins": list(self.plugins), "findings": [asdict(f) for f in self.findings]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> PluginCheckReport:
        """Return the report that `to_json` encoded."""
        findings = (
            CheckFinding(**{**f, "owners": tuple(f["owners"]), "details": tuple(f["details"])})
            for f in value["findings"]
        )
        return cls(tuple(value["plugins"]), tuple(findings))


def _ordered(findings: Iterable[CheckFinding]) -> list[CheckFinding]:
    return sorted(findings, key=lambda f: (f.kind, f.name, f.owners, f.text))


def _conflict(finding: CheckFinding) -> dict[str, Any]:
    return {"kind": finding.kind, "name": finding.name, "owners": list(finding.owners), "text": finding.text}


def describe_plugin(record: LoadedPlugin) -> dict[str, Any]:
    """Return the entry of a plugin in `plugins.json`."""
    report = report_loaded(record)
    kinds = ("tools", "hooks", "commands", "cli_commands", "providers")
    return {
        **{name: getattr(report, name) for name in ("key", "name", "version", "source", "path", "kind")},
        "requires_env": sorted(record.manifest.env_names),
        "provides_tools": sorted(record.manifest.provides_tools),
        "platforms": sorted(report.platforms),
        **{kind: list(report.registers.get(kind, ())) for kind in kinds},
    }


def rejection_finding(rejected: RejectedPlugin, found: Discovery) -> CheckFinding:
    """Return the finding for a rejected plugin."""
    if not rejected.rival:
        text = f"the plugin at {rejected.path} cannot be used: {rejected.reason}"
        return CheckFinding("error", "manifest", text, (rejected.name,))
    details = (rejected.rival, rejected.path)
    text = f"two plugins are both called `{rejected.name}`:"
    hint = "Leave one out, or change `name` in one plugin.yaml."
    return CheckFinding("error", "plugin", text, (rejected.name, rejected.name), details, hint, rejected.name)


def load_findings(records: list[LoadedPlugin]) -> list[CheckFinding]:
    """Return the findings for the plugins that were loaded or failed to load."""
    by_key = {record.manifest.key: record for record in records}
    findings: list[CheckFinding] = []
    for record in records:
        key = record.manifest.key
        if record.status == "failed":
            findings.append(_failure(record))
        record.note_twin(by_key)
        findings += [_problem(record, problem, by_key) for problem in record.problems]
        report = report_loaded(record)
        findings += [CheckFinding("warning", "note", f"plugin `{key}`: {note}", (key,)) for note in report.notes]
        if report.replaces:
            text = f"plugin `{key}` ({report.path}) replaces the bundled one ({report.replaces})"
            findings.append(CheckFinding("warning", "note", text, (key,)))
        if record.enabled and record.manifest.provides_tools:
            findings += _mismatch(record)
    return findings


def _failure(record: LoadedPlugin) -> CheckFinding:
    """Return the finding for a plugin that failed to load, with a hint if the remedy is known."""
    report = report_loaded(record)
    key, error = report.key, report.error
    place = (f"at {report.where}",) if report.where else ()
    hint = ""
    match = NOT_INSTALLED.fullmatch(error)
    if match is not None and match[1] not in ("hermes_agent", "hermes_plugins"):
        package = match[1]
        hint = f"`{package}` is not installed with the agent: add it to extraPythonPackages."
    return CheckFinding("error", "failed", f"plugin `{key}` failed to load: {error}", (key,), place, hint)


def _problem(record: LoadedPlugin, problem: RegistrationProblem, by_key: dict[str, LoadedPlugin]) -> CheckFinding:
    key, path = record.manifest.key, record.manifest.path
    mine = f"plugin `{key}` ({path})"
    if problem.owner == BUILTIN:
        text = f"plugin `{key}` registers the {problem.kind} `{problem.name}`, which is the agent's own:"
        return CheckFinding(
            "error", problem.kind, text, (key, BUILTIN), (mine,), _sentence(problem.remedy), problem.name
        )
    if not problem.owner:  # the name itself is invalid
        text = f"plugin `{key}`: {problem.text}"
        return CheckFinding("error", "failed", text, (key,), (mine,), _sentence(problem.remedy))
    other = by_key.get(problem.owner)
    theirs = f"plugin `{problem.owner}` ({other.manifest.path})" if other else f"`{problem.owner}`"
    owners = tuple(sorted((problem.owner, key)))
    text = f"two plugins register the {problem.kind} `{problem.name}`:"
    hint = f"Disable one of them (plugins.disabled), or {problem.remedy}."
    return CheckFinding("error", problem.kind, text, owners, tuple(sorted((theirs, mine))), hint, problem.name)


def _mismatch(record: LoadedPlugin) -> list[CheckFinding]:
    key, declared = record.manifest.key, set(record.manifest.provides_tools)
    registered = set(record.tools_registered) | {p.name for p in record.problems if p.kind == "tool"}
    texts = []
    if declared - registered:
        names = ", ".join(sorted(declared - registered))
        texts.append(f"plugin `{key}`: provides_tools names {names}, which it does not register")
    if registered - declared:
        names = ", ".join(sorted(registered - declared))
        texts.append(f"plugin `{key}` registers {names}, which provides_tools does not name")
    return [CheckFinding("warning", "provides_tools", text, (key,)) for text in texts]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


SANDBOX_LIMIT_S = 600.0
OUTPUT_BYTES = 1_000_000
REPORT_BYTES = 32_000_000
TMP_MB, MEMORY_MB, PROCESSES = 512, 2048, 256
HIDDEN = "hidden-from-plugins-check"
_KEPT_VARIABLES = ("HERMES_BUNDLED_PLUGINS",)
_REMOVED_VARIABLES = ("HOME", "TMPDIR", "TMP", "TEMP", "USER", "LOGNAME")
_LEAST_SECRET = 4
"""Shortest value that is replaced, in characters: a shorter one would also match parts of other words."""


class SandboxedCheck(LazyNamedTuple):
    """The result of a check in the sandbox."""

    outcome: dict[str, Any] | None
    """The report as JSON types, or None if the check did not write one."""
    output: str
    """Text that the check and the plugins printed."""
    how: str
    """How the check ended, for an error message if there is no report."""


def check_in_sandbox(
    directories: Sequence[str], *, config: str = "", limit_s: float = SANDBOX_LIMIT_S
) -> SandboxedCheck:
    """Run `hermes plugins check` on these directories in the sandbox.

    Args:
        config: path of a config file, or ""; the sandbox gets a copy without its secrets.
        limit_s: time limit for the whole check, in seconds.

    Raises:
        UserError: no sandbox can be created, or the config cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="hermes-plugins-apart-", ignore_cleanup_errors=True) as name:
        place = Path(os.path.realpath(name))
        work, user = place / "work", place / "user"
        work.mkdir()
        user.mkdir()
        words = [
            sys.executable,
            "-m",
            "hermes_agent",
            "plugins",
            "check",
            "--no-sandbox",
            "--report",
            str(work / "out"),
        ]
        if config:
            (work / "config.yaml").write_bytes(_without_secrets(config))
            words += ["--config", str(work / "config.yaml")]
        sandbox, bounds = _make_sandbox(place, directories)
        inside = bounds.inside([*words, *directories])
        bounded = bounds.wrap(*sandbox.wrap(inside, str(work), _environment(work), root=str(work)))
        try:
            done = run(
                bounded.argv,
                cwd=Path("/"),
                env=bounded.env,
                timeout_s=limit_s,
                output_limit_bytes=OUTPUT_BYTES,
                cancelled=threading.Event(),
            )
        finally:
            bounded.finish()
        return _read_result(done, work / "out")


def _read_result(done: CommandResult, report: Path) -> SandboxedCheck:
    said = done.output.decode("utf-8", "replace")
    how = "it took too long" if done.timed_out else f"the check ended with status {done.exit_code}"
    try:
        outcome = json.loads(_read_regular(report))  # a plugin may have replaced the file with anything
    except (OSError, ValueError):
        outcome = None
    return SandboxedCheck(outcome if isinstance(outcome, dict) else None, said, how)


def _make_sandbox(place: Path, directories: Sequence[str]) -> tuple[BubblewrapSandbox, CommandLimits]:
    """Return a sandbox that shows the plugins but no user's home, and its resource limits.

    Raises:
        UserError: no sandbox can be created.
    """
    from hermes_agent.workspace.paths import PathRules
    from hermes_agent.workspace.sandbox.bubblewrap import BubblewrapSandbox
    from hermes_agent.workspace.sandbox.limits import CommandLimits, ProcessLimits

    shown = [*map(os.path.realpath, directories), *directories, *_import_roots()]
    places = PathRules(str(place / "agent"), str(place / "user"), added=shown)
    sandbox = BubblewrapSandbox(places, path=os.environ.get("PATH"), tmp_mb=TMP_MB)
    if sandbox.problem:
        raise UserError(
            f"plugins are not loaded, since no sandbox can be made: {sandbox.problem}",
            hint="Install bubblewrap and allow user namespaces; `hermes plugins check --no-sandbox` loads them "
            "without one, where the machine is a sandbox itself (the builder of a container).",
        )
    return sandbox, CommandLimits(os.environ, ProcessLimits(MEMORY_MB, PROCESSES))


def _import_roots() -> Iterator[str]:
    """Yield the directories that Python and the agent import from, without those that contain the home."""
    home, here = str(Path.home().resolve()), str(Path.cwd().resolve())
    own = Path(hermes_agent.__file__).resolve().parent
    yield from (str(own.parent), os.path.realpath(own / "_bundled"))
    declared = os.environ.get("HERMES_BUNDLED_PLUGINS", "").split(":")
    for path in (*declared, *sys.path):
        real = os.path.realpath(path)
        is_here = real == here and not any(Path(real).glob("*.dist-info"))
        if path and not is_here and real != "/" and not f"{home}/".startswith(f"{real}/"):
            yield from (path, real)


def _environment(work: Path) -> dict[str, str]:
    """Return the allowed part of the environment, so that no secret is in it or in `/proc/PID/environ`."""
    listed = tool_environment(os.environ).items()
    environ = {k: v for k, v in listed if not k.lower().endswith("_proxy") and k not in _REMOVED_VARIABLES}
    passed = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    paths = os.pathsep.join(path for path in sys.path if path)
    return {**environ, **passed, "HOME": str(work), "HERMES_HOME": str(work / "home"), "PYTHONPATH": paths}


def _without_secrets(config: str) -> bytes:
    """Return the text of a config file with its secrets replaced; line numbers do not change.

    Raises:
        UserError: the file cannot be read.
    """
    from hermes_agent.config.effective import file_secrets
    from hermes_agent.config.yaml_reader import read_file

    try:
        text = Path(config).read_text(encoding="utf-8", errors="replace")
    except OSError as exc:
        raise UserError(f"cannot read {config}: {exc.strerror}") from exc
    secrets = {value for value in file_secrets(read_file(Path(config)).value) if len(value) >= _LEAST_SECRET}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text.encode()


def _read_regular(path: Path) -> bytes:
    """Read a file that a plugin may have replaced: at most `REPORT_BYTES` of a regular file.

    Raises:
        OSError: it is a link, a pipe or another special file, or cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is no file", str(path))
        return file.read(REPORT_BYTES)
