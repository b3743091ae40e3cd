#!/usr/bin/env python3
"""Build the site of the documentation: `python docs/site/build.py [FOLDER]` (default: .cache/site/html).

It runs with the packages of requirements/docs.txt (`make site`). A warning of Sphinx, such as a broken link or anchor,
ends it with an error.
"""

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from conf import HERE, PROJECT_PAGES, ROOT, SOURCE


def gather() -> None:
    """Copy the pages of `docs/` and of the root of the repository into one folder."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    for page in sorted((ROOT / "docs").rglob("*.md")):
        target = SOURCE / page.relative_to(ROOT / "docs")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, target)
    shutil.copytree(ROOT / "docs" / "pictures", SOURCE / "pictures")
    (SOURCE / "project").mkdir()
    for name in PROJECT_PAGES:
        shutil.copyfile(ROOT / name, SOURCE / "project" / name)


def main() -> int:
    """Build the site and return the exit status."""
    from sphinx.cmd.build import build_main

    out = Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCE.with_name("html")
    gather()
    options = ["--quiet", "--fail-on-warning", "--keep-going", "--fresh-env", "--builder", "html"]
    status = build_main([*options, "--conf-dir", str(HERE), str(SOURCE), str(out)])
    if status == 0:
        shutil.copytree(ROOT / "docs" / "pictures", out / "pictures", dirs_exist_ok=True)
        (out / "index.html").write_text(
            '<!doctype html><meta http-equiv="refresh" content="0; url=README.html"><a href="README.html">Start</a>\n'
        )
        print(f"The first page is {out / 'README.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
