"""An empty Debian for the README's commands.

`HERMES_README=light` hands in what this machine has fetched before: the Debian, the packages of the locked requirement
files (both below `.cache/readme`) and the weights of the embedded model.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

__all__ = ["FOR_INSTALL", "FOR_RUN", "LIGHT", "REACHES", "ROOT", "debian", "fenced", "run"]

ROOT = Path(__file__).parents[2]
HANDED_IN = ("/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf")
"""How this machine reaches the network; a newcomer's has its own."""
REACHES = re.compile(r"_PROXY$|_CA_CERTS$|_CA_BUNDLE$|^SSL_CERT_FILE$|^PIP_CERT$|_TIMEOUT$")

_NAMED = re.search(r"`apt install ([^`]+)`", (ROOT / "README.md").read_text())
assert _NAMED is not None, "README says what Debian has to have"
FOR_RUN = ("python3", "make", "git", "ca-certificates")
FOR_INSTALL = ("ca-certificates", "ngircd", "systemd", "dbus", "libpam-systemd", *_NAMED[1].split())
"""What README names, the machine's authorities, its systemd, and the server of the user whose chat it is."""

LIGHT = os.environ.get("HERMES_README") == "light"
FETCHED = ROOT / ".cache" / "readme"
LOCKED = ("build.txt", "run.txt", "local.txt", "openai.txt")
WEIGHTS = Path.home() / ".cache" / "hermes"


def fenced(language: str) -> list[str]:
    """Return README's blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def debian(root: Path, packages: tuple[str, ...]) -> Path:
    """Make a Debian with these packages and a clone of this repository in `/checkout`; `light` has one for all."""
    if os.geteuid() != 0:
        pytest.skip("making a container needs root")
    if shutil.which("mmdebstrap") is None:
        pytest.skip("mmdebstrap is not installed")
    if LIGHT:
        root.mkdir(parents=True)
        _checked("tar", "--numeric-owner", "-C", str(root), "-xf", str(_kept_debian()))
        shutil.copytree(_kept_packages(), root / "packages")
    else:
        _bootstrap(packages, root)
    for name in HANDED_IN:
        if Path(name).exists() and not (LIGHT and name == "/etc/pip.conf"):
            target = root / name.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(name, target)
    (root / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
    _checked("git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(root / "checkout"))
    return root


def _bootstrap(packages: tuple[str, ...], target: Path) -> None:
    include = f"--include={','.join(packages)}"
    _checked("mmdebstrap", "--quiet", "--variant=minbase", include, "bookworm", str(target))


def _kept_debian() -> Path:
    packages = tuple(sorted({*FOR_RUN, *FOR_INSTALL}))
    kept = FETCHED / f"debian-{hashlib.sha256(repr(packages).encode()).hexdigest()[:12]}.tar"
    if not kept.exists():
        FETCHED.mkdir(parents=True, exist_ok=True)
        unfinished = kept.with_name(f"unfinished-{os.getpid()}-{kept.name}")
        _bootstrap(packages, unfinished)
        unfinished.rename(kept)
    return kept


def _kept_packages() -> Path:
    """Return the folder with the archives that the locked requirement files name."""
    files = [ROOT / "requirements" / name for name in LOCKED]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
    kept = FETCHED / f"packages-{digest}"
    if not kept.exists():
        unfinished = FETCHED / f"unfinished-{os.getpid()}-packages"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
        for file in files:
            command += ["--requirement", str(file)]
        _checked(*command, "--require-hashes", "--dest", str(unfinished))
        unfinished.rename(kept)
    return kept


def _checked(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


def run(root: Path, script: str, timeout_s: int, *, own_network: bool = False) -> subprocess.CompletedProcess[str]:
    """Run `script` in the container's checkout, as root, with nothing of our environment.

    Args:
        root: the container.
        script: for sh.
        timeout_s: it is killed then, with all that it started; also what it leaves running is.
        own_network: a loopback device alone, where no port is taken; otherwise the machine's.
    """
    inherited = {name: value for name, value in os.environ.items() if REACHES.search(name.upper())}
    if LIGHT:
        inherited |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/packages"}
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8", **inherited}
    weights = f"mkdir -p {root}/root/.cache/hermes && mount --bind {WEIGHTS} {root}/root/.cache/hermes && "
    # pivot_root, not chroot: in a chroot the kernel refuses the user namespaces that units ask for
    prepare = (
        f"mount --bind {root} {root} && {weights if LIGHT and WEIGHTS.exists() else ''}"
        f"mount --rbind /dev {root}/dev && mount -t proc proc {root}/proc"
        f" && mount --rbind /sys {root}/sys && mount -t tmpfs tmpfs {root}/tmp && mkdir -p {root}/.old"
        f" && {'ip link set lo up && ' if own_network else ''}cd {root} && pivot_root . .old && umount -l /.old"
        " && exec sh -euc 'cd /checkout; { . /script; }'"
    )
    (root / "script").write_text(script)
    namespaces = ["--mount", "--pid", "--fork", "--kill-child", *(["--net"] if own_network else [])]
    return subprocess.run(
        ["unshare", *namespaces, "sh", "-c", prepare],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
