"""Install a pure-Python project as its wheel would be: what setuptools would leave out is left out.

install.py --shebang PYTHON SOURCE OUT NAME VERSION SITE
"""

import argparse
import compileall
import py_compile
import re
import shutil
import tomllib
from pathlib import Path

NOT_PACKAGES = {"tests", "test", "docs", "build", "dist"}


def find_files(root: Path, package_data: dict[str, list[str]]) -> list[Path]:
    """Return the modules below `root`, and the data files that `package_data` names, relative to it."""
    files = [p.relative_to(root) for p in root.glob("*.py") if p.name not in {"setup.py", "conftest.py"}]
    for package in sorted(p for p in root.iterdir() if (p / "__init__.py").is_file() and p.name not in NOT_PACKAGES):
        patterns = ["**/*.py", *package_data.get("*", []), *package_data.get(package.name, [])]
        found = {path for pattern in patterns for path in package.glob(pattern) if path.is_file()}
        files += sorted(p.relative_to(root) for p in found if "__pycache__" not in p.parts)
    return files


def write_metadata(info: Path, project: dict, name: str, version: str) -> None:
    info.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in project.get("dependencies", [])]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    (info / "INSTALLER").write_text("install.py\n")
    groups = dict(project.get("entry-points", {}))
    if project.get("scripts"):
        groups["console_scripts"] = project["scripts"]
    sections = [
        "\n".join([f"[{group}]", *(f"{k} = {v}" for k, v in entries.items())]) for group, entries in groups.items()
    ]
    if sections:
        (info / "entry_points.txt").write_text("\n\n".join(sections) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shebang", required=True)
    for name in ("source", "out", "name", "version", "site"):
        parser.add_argument(name)
    args = parser.parse_args()

    source, out = Path(args.source), Path(args.out)
    manifest = source / "pyproject.toml"
    config = tomllib.loads(manifest.read_text()) if manifest.is_file() else {}
    project, setuptools = config.get("project", {}), config.get("tool", {}).get("setuptools", {})
    where = setuptools.get("packages", {}).get("find", {}).get("where", ["src" if (source / "src").is_dir() else "."])
    site = out / args.site
    site.mkdir(parents=True)
    for root in (source / w for w in where):
        for file in find_files(root, setuptools.get("package-data", {})):
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / file, site / file)
    version = project.get("version", args.version)
    name = project.get("name", args.name)
    write_metadata(site / f"{re.sub(r'[-_.]+', '_', name)}-{version}.dist-info", project, name, version)
    for command, target in project.get("scripts", {}).items():
        module, _, function = target.partition(":")
        script = out / "bin" / command
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!{args.shebang}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
        script.chmod(0o755)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(site, quiet=2, stripdir=str(site), invalidation_mode=mode)


if __name__ == "__main__":
    main()
