"""Refuse a declared host whose daemon would not start, or would not do what it says: start_check.py SPEC.json OUT.

The agent's own `hermes doctor --declared` starts it in an empty home, with the plugins, the PATH and the variables of
the unit. What is wrong is said in the words of the options. Warnings are printed and written to OUT, a line each; with
`strict` they are errors.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from hermes_agent.app.declared_checks import GIVE, GIVE_UNIT, JOBS, PROVIDER_HINT, TOLERATE

MODULE = "services.hermes-agent"
OPTION = f"{MODULE}.settings"
PLACEHOLDER = "given-when-the-daemon-starts"
MOST = 3
"""Errors that are shown: `nix build` shows ten lines."""
VARIABLE = re.compile(r"\$\{(\w+)\}|needs (\w+)|set the variable (\w+)")

Finding = dict[str, Any]


def run(spec: dict[str, Any]) -> list[Finding]:
    """Return what the agent finds."""
    work = Path(os.environ["TMPDIR"])
    service = work / "service.json"
    service.write_text(json.dumps(spec["service"]), encoding="utf-8")
    environment = {
        "PATH": spec["path"] or os.environ["PATH"],
        "HOME": str(work),
        "HERMES_HOME": str(work / "home"),
        "LC_ALL": "C.UTF-8",
        # A store that the builder can write to keeps no bytecode either.
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(work),
        **spec["environment"],
    }
    command = [spec["hermes"], "doctor", "--declared", spec["file"], "--service", str(service), "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    try:
        findings: list[Finding] = json.loads(done.stdout)["findings"]
    except (ValueError, TypeError, KeyError):
        print(f"error: hermes-agent: `hermes doctor --declared` ended with {done.returncode}:", file=sys.stderr)
        print("\n".join(done.stderr.strip().splitlines()[-6:]), file=sys.stderr)
        print("hint: this is a fault of the agent; report it with these lines.", file=sys.stderr)
        raise SystemExit(1) from None
    return findings


def place(finding: Finding, prefix: str) -> str:
    """Return a finding behind the name of the option that it is about."""
    text = finding["text"].replace("plugins.tolerated", f"{prefix}.plugins.tolerated")
    if finding["key"].startswith(("environment.", "extraArgs", "localModel.")):
        return f"{prefix}.{text}"
    if finding["key"] == JOBS:
        return f"{prefix}.hermesHomeFiles: {text}"
    return f"{prefix}.extraPlugins: {text}" if text.startswith("plugin `") else f"{prefix}.settings: {text}"


def hint(finding: Finding, prefix: str) -> str:
    """Return what to write into the configuration of the host."""
    remedy: str = finding["remedy"]
    found = VARIABLE.search(finding["text"])
    if found and (remedy == GIVE or found[3]):
        name = next(filter(None, found.groups()))
        return f'{prefix}.credentials.{name} = "/run/secrets/…";'
    if remedy == GIVE_UNIT.format(finding["key"]):
        return f'{prefix}.plugins.isolated = [ "{finding["key"]}" ];'
    if remedy == TOLERATE:
        package = re.search(r"wants the Python package `([A-Za-z0-9._-]+)", finding["text"])
        if package:
            return f"{prefix}.extraPythonPackages = ps: [ ps.{package[1]} ];"
        return f'mend the plugin, or {prefix}.plugins.tolerated = [ "{finding["key"]}" ];'
    if remedy == PROVIDER_HINT:
        return f"{prefix}.settings.model.provider names a provider; {prefix}.credentials gives its key."
    if "plugins.entries." in finding["text"] and not remedy:
        return f"config_schema of its plugin.yaml has the options that {prefix}.plugins.settings takes."
    if "on the PATH" in finding["text"]:
        return f"add the package that has it to {prefix}.extraPackages, or write its path, as in lib.getExe pkgs.…"
    if remedy.startswith("A plugin may bring it"):
        return "a plugin in extraPlugins or extraPythonPackages may bring it, once it is enabled."
    if "Declare a credential, and" in remedy or "Write ${NAME}" in remedy:
        return f"give it with {prefix}.credentials, write `\\${{NAME}}` in its place, and revoke what was written here."
    return remedy[:1].lower() + remedy[1:] if remedy else ""


def report(findings: list[Finding], spec: dict[str, Any], out: str) -> int:
    """Print the findings, write the warnings to `out`, and return the exit status."""
    prefix = spec["option"]
    of_plugins = json.loads(Path(spec["report"]).read_text(encoding="utf-8"))
    warnings = [place(f, prefix) for f in findings if f["level"] != "error"]
    warnings += [f"{prefix}.extraPlugins: {text}" for text in of_plugins.get("warnings", ())]
    errors = [f for f in findings if f["level"] == "error"]
    for finding in errors[:MOST]:
        print(f"error: hermes-agent: {place(finding, prefix)}", file=sys.stderr)
    if len(errors) > MOST:
        print(f"error: hermes-agent: and {len(errors) - MOST} more", file=sys.stderr)
    hints = dict.fromkeys(filter(None, (hint(finding, prefix) for finding in errors[:MOST])))
    for text in hints:
        print(f"hint: {text}", file=sys.stderr)
    if errors:
        return 1
    level = "error" if spec["strict"] else "warning"
    for text in warnings[: MOST + 4] if spec["strict"] else warnings:
        print(f"{level}: hermes-agent: {text}", file=sys.stderr)
    if warnings and spec["strict"]:
        print(
            f"hint: {prefix}.strictChecks = false; builds with warnings, and shows them at the switch.", file=sys.stderr
        )
        return 1
    Path(out).write_text("".join(f"{text}\n" for text in warnings), encoding="utf-8")
    return 0


def main(spec_file: str, out: str) -> int:
    spec = json.loads(Path(spec_file).read_text(encoding="utf-8"))
    return report(run(spec), spec, out)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
