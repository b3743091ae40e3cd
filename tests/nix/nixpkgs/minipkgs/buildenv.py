"""Link several trees into one, as nixpkgs' buildEnv does; two different files at one place are refused."""

import json
import os
import sys
from pathlib import Path


def link(sources: list[Path], target: Path, ignore_collisions: bool) -> None:
    """Make `target` the union of `sources`: a link where there is one, a directory where there are several."""
    directories = [s for s in sources if s.is_dir()]
    if len(sources) == 1:
        target.symlink_to(sources[0])
    elif len(directories) == len(sources):
        target.mkdir()
        names = sorted({entry.name for s in sources for entry in s.iterdir()})
        for name in names:
            link([s / name for s in sources if os.path.lexists(s / name)], target / name, ignore_collisions)
    elif ignore_collisions or len({s.resolve() for s in sources}) == 1:
        target.symlink_to(sources[0])
    else:
        sys.exit(f"error: collision between `{sources[1]}' and `{sources[0]}'")


def main(spec_file: str, out: str) -> None:
    spec = json.loads(Path(spec_file).read_text())
    root = Path(out)
    root.mkdir()
    trees = [Path(p) for p in spec["paths"]]
    for name in sorted({e.name for t in trees for e in t.iterdir()} - {"nix-support"}):
        sources = [t / name for t in trees if (t / name).exists()]
        if len(sources) == 1 and sources[0].is_dir():
            # The top level is always made, so that a postBuild can add to it.
            (root / name).mkdir()
            for entry in sorted(sources[0].iterdir()):
                link([entry], root / name / entry.name, spec["ignoreCollisions"])
        else:
            link(sources, root / name, spec["ignoreCollisions"])


if __name__ == "__main__":
    main(*sys.argv[1:])
