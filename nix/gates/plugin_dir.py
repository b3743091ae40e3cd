"""Lay directory plugins out under the names of their manifests; refuse what cannot be told apart.

plugin_dir.py SPEC.json OUT. SPEC is a list of directories. OUT/plugins/<name> becomes a link to each, and
OUT/manifests.json `{name: {"path", "kind", "requires_env": [name, …]}}`. Manifests are read as the agent reads them.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from hermes_agent.plugins.manifest import MANIFEST_NAMES, InvalidManifest, PluginManifest, read_manifest

OPTION = "services.hermes-agent.extraPlugins"
STORE_NAME = re.compile(r"[0-9a-z]{32}-.*")


class Refused(Exception):
    """Why one directory is no plugin: a text, and what to do."""


def manifest_file(plugin: Path) -> Path:
    for name in MANIFEST_NAMES:
        if (plugin / name).is_file():
            return plugin / name
    below = sorted(found.parent.name for name in MANIFEST_NAMES for found in plugin.glob(f"*/{name}"))
    remedy = (
        f'it lies one level down, in {", ".join(below)}: add that to the path, as in "${{src}}/{below[0]}".'
        if below
        else "a directory plugin has plugin.yaml and __init__.py; a Python package goes to extraPythonPackages."
    )
    raise Refused(f"{OPTION}: {plugin} has no plugin.yaml at its root\nhint: {remedy}")


def usable_manifest(plugin: Path) -> PluginManifest:
    """Return the manifest of `plugin`, once it can be loaded under its own name."""
    file = manifest_file(plugin)
    try:
        manifest = read_manifest(str(file), source="declared")
    except InvalidManifest as error:
        raise Refused(f"{OPTION}: {file}, {error}\nhint: mend the manifest.") from error
    # A manifest without a name takes that of the folder, which says nothing in the store.
    if STORE_NAME.fullmatch(manifest.name):
        raise Refused(f"{OPTION}: {file} has no `name`\nhint: write `name: my-plugin` into the manifest.")
    if not (manifest.portable or (plugin / "__init__.py").is_file()):
        raise Refused(f"{OPTION}: {plugin} has no __init__.py at its root\nhint: it defines `register(ctx)`.")
    return manifest


def collect(plugins: list[Path]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return what was found by name, and why the rest was refused."""
    found: dict[str, dict[str, Any]] = {}
    problems = []
    for plugin in plugins:
        try:
            manifest = usable_manifest(plugin)
        except Refused as refusal:
            problems.append(str(refusal))
            continue
        entry = {"path": str(plugin), "kind": manifest.kind, "requires_env": manifest.env_names}
        other = found.setdefault(manifest.name, entry)
        if other["path"] != str(plugin):
            both = f"    {other['path']}\n    {plugin}"
            problems.append(
                f"two plugins are both called `{manifest.name}`:\n{both}\nhint: drop one of them from {OPTION}."
            )
    return found, problems


def main(spec_file: str, out: str) -> int:
    found, problems = collect([Path(p) for p in json.loads(Path(spec_file).read_text(encoding="utf-8"))])
    for problem in problems:
        print(f"error: hermes-agent: {problem}", file=sys.stderr)
    if problems:
        return 1
    plugins = Path(out, "plugins")
    plugins.mkdir(parents=True)
    for name, entry in found.items():
        (plugins / name).symlink_to(entry["path"])
    Path(out, "manifests.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
