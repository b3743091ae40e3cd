"""Copy one installed distribution of the host into a store path: take.py SITE NAME DESTINATION."""

import compileall
import py_compile
import re
import shutil
import sys
from importlib.metadata import distributions
from pathlib import Path


def main(site: str, name: str, destination: str) -> None:
    def canonical(text: str) -> str:
        return re.sub(r"[-_.]+", "-", text).lower()

    found = [d for d in distributions(path=[site]) if canonical(d.metadata["Name"] or "") == name]
    if not found:
        sys.exit(f"error: no distribution {name} in {site}")
    for file in found[0].files or []:
        if ".." in file.parts or "__pycache__" in file.parts:
            continue
        target = Path(destination, file)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(site, file), target)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(destination, quiet=2, stripdir=destination, invalidation_mode=mode)


if __name__ == "__main__":
    main(*sys.argv[1:])
