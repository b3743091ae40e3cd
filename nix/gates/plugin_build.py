"""Try one directory plugin, and lay it out when it is good: plugin_build.py SPEC.json OUT.

SPEC is `{"source": directory, "doCheck": bool, "environment": {name: value}, "declared": {key: value} or null}`; what
is declared are keys that the manifest has to have. The interpreter has the agent, pytest and what the plugin is said
to import.
"""

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from hermes_agent.app.plugins.doctor import pip_dependencies
from hermes_agent.plugins.closure import requirement, satisfies
from hermes_agent.plugins.manifest import MANIFEST_NAMES, InvalidManifest, read_manifest

LINES = 6
"""How much is told of a failed check: `nix build` shows ten lines."""


class Refused(Exception):
    """Why this is no plugin that works: a text, and what to do."""


def compare(file: Path, declared: dict[str, Any]) -> None:
    """Refuse a manifest whose keys are not those that the package declares."""
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    schema, written = declared["config_schema"], document.get("config_schema") or {}
    pairs = [("pluginName", "name", declared["name"], document.get("name"))]
    pairs += [
        (f"configSchema.{key}", f"config_schema.{key}", schema.get(key), written.get(key))
        for key in sorted({*schema, *written})
    ]
    for option, key, mine, manifests in pairs:
        if mine != manifests:
            raise Refused(
                f"`{option}` of the package and `{key}` of the manifest differ:\n  {json.dumps(mine)}\n"
                f"  {json.dumps(manifests)}, {file}\nhint: write into `{option}` what the manifest says."
            )


def manifest_of(source: Path, declared: dict[str, Any] | None) -> None:
    """Refuse a directory that the agent would not take for a plugin, or that is not what the package declares."""
    file = next((source / name for name in MANIFEST_NAMES if (source / name).is_file()), None)
    if file is None:
        raise Refused(
            f"{source} has no plugin.yaml at its root\nhint: `src` is the directory that plugin.yaml lies in."
        )
    try:
        manifest = read_manifest(str(file), source="declared")
    except InvalidManifest as error:
        raise Refused(f"{file}, {error}\nhint: mend the manifest.") from error
    if declared is not None:
        compare(file, declared)
    for text in pip_dependencies(manifest):
        name, wanted = requirement(text)
        try:
            there = metadata.version(name)
        except metadata.PackageNotFoundError:
            raise Refused(
                f"the plugin `{manifest.name}` needs the Python package `{text}`, which no package provides:\n"
                f"  {file}\n"
                f"hint: buildHermesPlugin {{ dependencies = ps: [ ps.{name} ]; }}"
            ) from None
        if not satisfies(there, wanted):
            raise Refused(
                f"the plugin `{manifest.name}` wants `{text}`, and {name} {there} is there:\n  {file}\n"
                "hint: give it a version that fits, or widen the range in the manifest."
            )


def load(source: Path, environment: dict[str, str]) -> None:
    """Have the agent load it; what it says then is on stderr."""
    command = [sys.executable, "-m", "hermes_agent", "plugins", "check", "--no-sandbox", "--strict", str(source)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        raise SystemExit(1)


def test(plugin: Path, environment: dict[str, str]) -> None:
    """Run the tests that it brings."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, cwd=plugin, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()
        last = "\n".join(f"  {line}" for line in said[-LINES - 1 : -1])  # the last one counts
        raise Refused(f"the tests of the plugin fail:\n{last}\nhint: mend them, or doCheck = false;")


def main(spec_file: str, out: str) -> int:
    spec = json.loads(Path(spec_file).read_text(encoding="utf-8"))
    work = Path(os.environ["TMPDIR"])
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(work),
        "HERMES_HOME": str(work / "home"),
        "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        **spec["environment"],
    }
    source = Path(spec["source"])
    try:
        manifest_of(source, spec["declared"])
        load(source, environment)
        copy = work / "plugin"
        shutil.copytree(source, copy, symlinks=True)
        subprocess.run(["chmod", "-R", "u+w", str(copy)], check=True)
        if spec["doCheck"] and (copy / "tests").is_dir():
            test(copy, environment)
    except Refused as refusal:
        print(f"error: hermes-agent: {refusal}", file=sys.stderr)
        return 1
    shutil.copytree(source, out, symlinks=True, ignore=shutil.ignore_patterns("tests", "__pycache__", "*.pyc"))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
