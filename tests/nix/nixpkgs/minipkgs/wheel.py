"""Install a wheel, as nixpkgs' hooks do: relaxed and removed requirements change its metadata.

wheel.py --shebang PYTHON [--relax NAME …] [--remove NAME …] WHEEL OUT SITE
"""

import argparse
import compileall
import configparser
import py_compile
import re
import zipfile
from pathlib import Path

REQUIREMENT = re.compile(r"^Requires-Dist:\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^]]*\])?[^;]*(;.*)?$")


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def changed(metadata: str, relaxed: set[str], removed: set[str]) -> str:
    """Return METADATA without the versions of `relaxed`, and without `removed`."""
    lines = []
    for line in metadata.splitlines():
        found = REQUIREMENT.match(line)
        if found and canonical(found[1]) in removed:
            continue
        if found and canonical(found[1]) in relaxed:
            line = f"Requires-Dist: {found[1]}{found[2] or ''}{found[3] or ''}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def scripts(info: Path) -> dict[str, str]:
    points = configparser.ConfigParser(delimiters=("=",))
    points.optionxform = str
    file = info / "entry_points.txt"
    points.read_string(file.read_text() if file.is_file() else "")
    return dict(points["console_scripts"]) if points.has_section("console_scripts") else {}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shebang", required=True)
    parser.add_argument("--relax", nargs="*", default=[])
    parser.add_argument("--remove", nargs="*", default=[])
    for name in ("wheel", "out", "site"):
        parser.add_argument(name)
    args = parser.parse_args()
    site = Path(args.out, args.site)
    site.mkdir(parents=True)
    with zipfile.ZipFile(args.wheel) as archive:
        archive.extractall(site)
    for data in site.glob("*.data"):
        for part in ("purelib", "platlib"):
            for file in sorted((data / part).glob("*")):
                file.rename(site / file.name)
    info = next(site.glob("*.dist-info"))
    metadata = info / "METADATA"
    metadata.write_text(changed(metadata.read_text(), set(args.relax), set(args.remove)))
    for command, target in scripts(info).items():
        module, _, function = target.partition(":")
        script = Path(args.out, "bin", command.strip())
        script.parent.mkdir(exist_ok=True)
        function = function.split("[")[0].strip()
        script.write_text(
            f"#!{args.shebang}\nimport sys\nfrom {module.strip()} import {function}\nsys.exit({function}())\n"
        )
        script.chmod(0o755)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(site, quiet=2, stripdir=str(site), invalidation_mode=mode)


if __name__ == "__main__":
    main()
