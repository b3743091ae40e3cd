"""Load every plugin as the daemon will, and refuse what would fail or be ambiguous: plugin_check.py SPEC.json OUT.

The agent's own `hermes plugins check` does it, with the PATH and the variables of the daemon, and writes OUT. What
it cannot know is whether a variable that a plugin requires will have a value; that is decided here.
"""

import difflib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

DEFAULT_OPTION = "services.hermes-agent"
"""Where the options of the host stand; those of another instance are below it."""
WITHOUT_GATE = ("backend", "platform", "model-provider", "exclusive")
"""Kinds of plugins that run without what they require, and say themselves what is missing."""

OF_SETTINGS = re.compile(r"^((?:error|warning): hermes-agent: )(?=plugins\.)", re.MULTILINE)

Plugin = dict[str, Any]
"""A plugin as `plugins.json` describes it."""


def read_json(file: str) -> dict[str, Any]:
    """Return the object in `file`; an empty one when the file was not written."""
    path = Path(file)
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def load_all(spec: dict[str, Any], out: str) -> int:
    """Run the agent's check; its texts are on stderr, its report in `out`."""
    environment = {
        "PATH": spec["path"] or os.environ["PATH"],
        "HOME": os.environ["TMPDIR"],
        "LC_ALL": "C.UTF-8",
        # A store that the builder can write to keeps no bytecode either.
        "PYTHONDONTWRITEBYTECODE": "1",
        **spec["environment"],
    }
    # What is enabled makes no difference to it, and `nobodys` has better words for a name that is not there.
    settings = {name: value for name, value in read_json(spec["config"])["plugins"].items() if name != "enabled"}
    config = Path(os.environ["TMPDIR"], "config.yaml")
    config.write_text(json.dumps({"plugins": settings}), encoding="utf-8")
    command = [spec["hermes"], "plugins", "check", "--no-sandbox", "--config", str(config), "--out", out]
    done = subprocess.run(
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    status = done.returncode
    report = read_json(out) if status else {}
    errors = report.get("errors", [])
    option = spec.get("option", DEFAULT_OPTION)
    # What is about a key of the settings is said behind the option that has it.
    sys.stderr.write(OF_SETTINGS.sub(rf"\1{option}.settings: ", done.stderr))
    sys.stderr.flush()
    if any("override built-in tool" in error for error in errors):
        print(f"hint: allow it: {option}.plugins.allowToolOverride = [ … ];", file=sys.stderr)
    elif any("failed to load" in error for error in errors):
        remedy = f"mend or drop it; for one that needs its machine: {option}.plugins.checkImports = false;"
        print(f"hint: {remedy}", file=sys.stderr)
    if tools := [conflict["name"] for conflict in report.get("conflicts", []) if conflict["kind"] == "tool"]:
        print(f'hint: here: {option}.plugins.allowToolOverride = [ "{tools[0]}" ];', file=sys.stderr)
    return status


def from_manifests(spec: dict[str, Any], out: str) -> None:
    """Write the report of plugins that are not to be imported while building."""
    manifests = read_json(spec["manifests"])
    plugins = [{"key": name, "name": name, "source": "declared", **entry} for name, entry in sorted(manifests.items())]
    Path(out).write_text(json.dumps({"version": 1, "plugins": plugins}, indent=2, sort_keys=True), encoding="utf-8")


def nobodys(enabled: list[str], plugins: list[Plugin], option: str) -> list[str]:
    """Return a text for each name in `plugins.enabled` that no plugin answers to."""
    known = sorted({name for plugin in plugins for name in (plugin["key"], plugin["name"])})
    texts = []
    for name in (name for name in enabled if name not in known):
        near = difflib.get_close_matches(name, known, n=1)
        guess = f" (did you mean `{near[0]}`?)" if near else ""
        there = ", ".join(f"`{k}`" for k in known) or "none"
        texts.append(
            f"error: hermes-agent: {option}.settings.plugins.enabled: no plugin is called `{name}`{guess}\n"
            f"hint: there are {there}; others come with {option}.extraPlugins or extraPythonPackages."
        )
    return texts


def lacking_variables(
    spec: dict[str, Any], disabled: list[str], plugins: list[Plugin]
) -> list[tuple[Plugin, list[str]]]:
    """Return the plugins that will lack a variable, each with the names."""
    lacking = []
    for plugin in plugins if spec["variables"] is not None else []:
        names = [name for name in plugin["requires_env"] if name not in spec["variables"]]
        if names and plugin["kind"] not in WITHOUT_GATE and not {plugin["key"], plugin["name"]} & set(disabled):
            lacking.append((plugin, names))
    return lacking


def say_what_is_lacking(plugin: Plugin, names: list[str], option: str, *, may_be_there: bool) -> None:
    level = "warning" if may_be_there else "error"
    print(f"{level}: hermes-agent: plugin `{plugin['key']}` requires {', '.join(names)}:", file=sys.stderr)
    print(f"  {plugin['path']}", file=sys.stderr)
    if may_be_there:
        print(f"hint: {option}.credentials does not give it; one of environmentFiles has to.", file=sys.stderr)
    else:
        print(f'hint: give it: {option}.credentials.{names[0]} = "/run/secrets/…";', file=sys.stderr)


def main(spec_file: str, out: str) -> int:
    spec = read_json(spec_file)
    option = spec.get("option", DEFAULT_OPTION)
    if not spec["checkImports"]:
        from_manifests(spec, out)
    elif status := load_all(spec, out):
        return status
    plugins = read_json(out)["plugins"]
    settings = read_json(spec["config"])["plugins"]

    # Packages are known by loading them alone.
    unknown = nobodys(settings.get("enabled") or [], plugins, option) if spec["checkImports"] else []
    for text in unknown:
        print(text, file=sys.stderr)
    lacking = lacking_variables(spec, settings.get("disabled") or [], plugins)
    for plugin, names in lacking:
        say_what_is_lacking(plugin, names, option, may_be_there=spec["hasEnvironmentFiles"])
    return 1 if unknown or (lacking and not spec["hasEnvironmentFiles"]) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
