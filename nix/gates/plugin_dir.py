"""Lay directory plugins out under the names of their manifests; refuse what cannot be told apart.

plugin_dir.py SPEC.json OUT. SPEC is a list of directories. OUT/plugins/<name> becomes a link to each, and
OUT/manifests.json `{name: {"path": …, "requires_env": [name, …]}}`.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

OPTION = "services.hermes-agent.extraPlugins"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Refused(Exception):
    """Why one directory is no plugin: a text, and what to do."""


def manifest_file(plugin: Path) -> Path:
    for name in ("plugin.yaml", "plugin.yml"):
        if (plugin / name).is_file():
            return plugin / name
    below = sorted(found.parent.name for found in plugin.glob("*/plugin.y*ml"))
    remedy = (
        f"it lies one level down, in {', '.join(below)}: add that to the path, as in \"${{src}}/{below[0]}\"."
        if below
        else "a directory plugin needs plugin.yaml and __init__.py; a Python package goes to extraPythonPackages."
    )
    raise Refused(f"{OPTION}: {plugin} has no plugin.yaml at its root\nhint: {remedy}")


def read_manifest(plugin: Path) -> dict[str, Any]:
    """Return the manifest of `plugin` once it can be loaded under its own name."""
    file = manifest_file(plugin)
    try:
        manifest = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        lines = "\n".join(f"    {line}" for line in str(error).splitlines())
        raise Refused(f"{OPTION}: {file} is not YAML:\n{lines}\nhint: mend the manifest.") from error
    name = manifest.get("name") if isinstance(manifest, dict) else None
    if name is None:
        raise Refused(f"{OPTION}: {file} has no `name`\nhint: write `name: my-plugin` into the manifest.")
    if not NAME.fullmatch(str(name)):
        raise Refused(
            f"{OPTION}: {file} has the name {name!r}\n"
            "hint: a name has letters, digits, dots, dashes and underscores, and starts with a letter or a digit."
        )
    if not (plugin / "__init__.py").is_file():
        raise Refused(f"{OPTION}: {plugin} has no __init__.py at its root\nhint: it defines `register(ctx)`.")
    return {**manifest, "name": str(name)}


def required_names(manifest: dict[str, Any]) -> list[str]:
    entries = manifest.get("requires_env") or []
    names = [entry.get("name") if isinstance(entry, dict) else entry for entry in entries]
    return [str(name) for name in names if name]


def main(spec_file: str, out: str) -> int:
    found: dict[str, dict[str, Any]] = {}
    problems = []
    for plugin in map(Path, json.loads(Path(spec_file).read_text(encoding="utf-8"))):
        try:
            manifest = read_manifest(plugin)
        except Refused as refusal:
            problems.append(str(refusal))
            continue
        name = manifest["name"]
        if name in found:
            problems.append(
                f"two plugins are both called `{name}`:\n    {found[name]['path']}\n    {plugin}\n"
                f"hint: drop one of them from {OPTION}."
            )
            continue
        found[name] = {"path": str(plugin), "requires_env": required_names(manifest)}
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
