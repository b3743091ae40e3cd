"""The README's commands, in order, as a newcomer would type them: in a container with Debian, Python, make and git.

Slow (a Debian, the model, every test): `make test-readme` runs it, `make test` does not. With `HERMES_README=light`, as
`make test-light` has it, `make test` is left out, and what this machine has fetched before is handed in.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = "python3,make,git,ca-certificates"
HANDED_IN = ("/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf")
"""How this machine reaches the network; a newcomer's has its own."""
REACHES = re.compile(r"_PROXY$|_CA_CERTS$|_CA_BUNDLE$|^SSL_CERT_FILE$|^PIP_CERT$|_TIMEOUT$")

LIGHT = os.environ.get("HERMES_README") == "light"
FETCHED = (".cache/pip", ".cache/hermes")
"""Below the home: packages and weights."""

pytestmark = pytest.mark.readme


def fenced(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("making a container needs root")
    if shutil.which("mmdebstrap") is None:
        pytest.skip("mmdebstrap is not installed")
    root = tmp_path_factory.mktemp("debian") / "root"
    made = subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(root)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    for name in HANDED_IN:
        if Path(name).exists():
            target = root / name.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(name, target)
    (root / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
    (root / "checkout").mkdir()
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(root / "checkout")], check=True)
    for name in FETCHED if LIGHT else ():
        if (Path.home() / name).exists():
            target = root / "root" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-a", "--reflink=auto", str(Path.home() / name), str(target)], check=True)
    yield root
    shutil.rmtree(root, ignore_errors=True)


def run(root: Path, script: str, timeout_s: int) -> subprocess.CompletedProcess[str]:
    """Run `script` in the container's checkout, as root, with the network and nothing of our environment."""
    inherited = {name: value for name, value in os.environ.items() if REACHES.search(name.upper())}
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8", **inherited}
    # pivot_root, not chroot: in a chroot the kernel refuses the user namespaces that units ask for
    prepare = (
        f"mount --bind {root} {root} && mount --rbind /dev {root}/dev && mount -t proc proc {root}/proc"
        f" && mount --rbind /sys {root}/sys && mount -t tmpfs tmpfs {root}/tmp && mkdir -p {root}/.old"
        f" && cd {root} && pivot_root . .old && umount -l /.old && exec sh -euc 'cd /checkout; {{ . /script; }}'"
    )
    (root / "script").write_text(script)
    return subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", prepare],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def test_the_fenced_commands_work_in_an_empty_container(container: Path) -> None:
    blocks = fenced("sh")
    assert [b.strip() for b in blocks[:2]] == ["make run", "make test"]
    if LIGHT:
        del blocks[1]
    outputs = []
    for block in blocks:
        done = run(container, block.replace("URL-of-this-repository", "/checkout"), 3000)
        print(f"$ {block}\n{done.stdout[-6000:]}")
        assert done.returncode == 0, f"{block}\n{done.stdout[-8000:]}"
        outputs.append(done.stdout)
    first = outputs[0]
    assert "calculator: calculate, unit_convert" in first
    assert re.search(r'calculate \{"expression": "', first)
    assert "65536" in first
    assert LIGHT or re.search(r"\d+ passed", outputs[1])
