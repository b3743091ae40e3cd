"""A virtual machine with a Debian kernel and root of its own, in memory: what a script says in there.

The root is made once (`.cache/vm`); this checkout and what it needs to run are added at each boot. The processor is
emulated, so that it works wherever qemu runs, and takes a minute.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from vm.archive import add_files, add_tar

__all__ = ["boot", "unavailable"]

CHECKOUT = Path(__file__).resolve().parents[2]
CACHE = CHECKOUT / ".cache" / "vm"
SUITE, PYTHON = "bookworm", (3, 11)
"""Debian's release, and its interpreter: what is compiled for the tests' interpreter has to fit it."""
KERNEL = "linux-image-cloud-amd64"
PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd", "util-linux", "procps", "acl"),
    *("python3", "bubblewrap", "libgomp1", "libstdc++6", "ca-certificates"),
)
PROGRAMS = ("qemu-system-x86_64", "mmdebstrap", "apt-get", "dpkg")
TESTS = ("pytest", "pluggy", "iniconfig", "packaging", "pytest-timeout")
"""Distributions that run the suite in there, beside those of requirements/run.txt."""
MODULES = ("md-mod", "raid1")
MEMORY_MB = 2048
SPARE_MB = 1024
"""Free memory that the machine of the tests must keep."""
ANSWER = "/dev/ttyS1"

TARGET = """\
[Unit]
Requires=basic.target
Wants=script.service dbus.socket systemd-logind.service
After=basic.target
AllowIsolate=yes
"""
SERVICE = f"""\
[Unit]
After=basic.target systemd-logind.service
[Service]
Type=oneshot
Environment=HOME=/root
ExecStart=/bin/sh -c "stty raw -F {ANSWER}; /opt/script >{ANSWER} 2>&1; sync; systemctl poweroff --force --force"
"""
INIT = """\
#!/bin/sh
# the kernel's first file system cannot be left by pivot_root, which every sandbox does: a second mount of it can
mount -t proc proc /proc; mount --bind / /mnt; mount --move /proc /mnt/proc
cd /mnt; mount --move . /; exec chroot . /opt/begin
"""
WITHOUT_SYSTEMD = f"""\
#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/shm; mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
stty raw -F {ANSWER}
/opt/script >{ANSWER} 2>&1
sync; echo o >/proc/sysrq-trigger; sleep 60
"""


def unavailable() -> str:
    """Return why no virtual machine can be booted here; empty when one can."""
    if platform.machine() != "x86_64":
        return f"the kernel is one for x86_64, and this is {platform.machine()}"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} is missing (packaging/debian-packages vm)"
    if sys.version_info[:2] != PYTHON or sys.implementation.name != "cpython":
        return f"what is installed is for {sys.version.split()[0]}, and {SUITE} has Python {PYTHON[0]}.{PYTHON[1]}"
    found = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
    free = int(found[1]) >> 10 if found else 0
    if free < MEMORY_MB + SPARE_MB:
        return f"{free} MiB of memory are free, {MEMORY_MB + SPARE_MB} are needed"
    return ""


def boot(
    script: str,
    folder: Path,
    *,
    systemd: bool = True,
    files: Mapping[str, Path | str] | None = None,
    packages: Sequence[str] = (),
    devices: Sequence[str] = (),
    program: bool = True,
) -> str:
    """Boot, run a script as root, and return what it printed.

    Args:
        folder: for the run's own files.
        systemd: whether systemd is the first process; without it there are control groups and nothing else.
        files: more of them, by their absolute path.
        packages: of Debian, beside those that every machine has.
        devices: options of qemu that add some.
        program: whether this checkout and what it needs is in there.
    """
    kernel, root = _kernel() / "vmlinuz", _root((*PACKAGES, *packages))
    image, answer = folder / "image", folder / "answer"
    with image.open("wb") as out, root.open("rb") as kept:
        shutil.copyfileobj(kept, out)
        add_files(
            out,
            {
                "/init": INIT,
                "/opt/begin": "#!/bin/sh\nexec /lib/systemd/systemd\n" if systemd else WITHOUT_SYSTEMD,
                "/etc/systemd/system/script.target": TARGET,
                "/etc/systemd/system/script.service": SERVICE,
                "/opt/script": script,
                **(_program() if program else {}),
                **{f"/opt/modules/{file.name}": file for file in _kernel().glob("*.ko")},
                **(files or {}),
            },
        )
    options = "console=ttyS0 panic=-1 quiet mitigations=off systemd.unit=script.target"
    words = [
        *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-smp", "2", "-cpu", "max", "-m", str(MEMORY_MB)),
        *("-display", "none", "-nodefaults", "-no-user-config", "-no-reboot", "-nic", "none"),
        *devices,
        *("-serial", "stdio", "-serial", f"file:{answer}"),
        *("-kernel", str(kernel), "-initrd", str(image), "-append", options),
    ]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=2400, check=False)
    except subprocess.TimeoutExpired as late:
        console = (late.stdout or b"")[-4000:].decode("utf-8", "replace")
        raise AssertionError(f"the machine did not end:\n{console}\n{_text(answer)[-4000:]}") from None
    finally:
        image.unlink()
    assert done.returncode == 0, done.stderr.decode()
    text = _text(answer)
    assert text, f"the script said nothing: {done.stdout[-4000:].decode('utf-8', 'replace')}"
    return text


WITHIN = ("contracts", "peers/sshd.py", "waiting.py", "unit/workspace/test_bounds.py", "vm/booted")
"""What runs in the machine, and what it imports of the tests."""


def _text(answer: Path) -> str:
    return answer.read_bytes().decode("utf-8", "replace").replace("\r", "") if answer.exists() else ""


def _program() -> dict[str, Path | str]:
    """Return this checkout and the distributions that it needs, by where they are to be."""
    found: dict[str, Path | str] = {
        "/opt/sources/hermes_agent": CHECKOUT / "hermes" / "hermes_agent",
        "/opt/sources/hermes_agent/_bundled": CHECKOUT / "plugins",
        "/opt/packaging": CHECKOUT / "packaging" / "systemd",
        **{f"/opt/tests/{name}": CHECKOUT / "tests" / name for name in WITHIN},
    }
    lines = (CHECKOUT / "requirements" / "run.txt").read_text().splitlines()
    for name in (*(line.split("==")[0] for line in lines if re.match(r"[a-z0-9]", line)), *TESTS):
        try:
            files = importlib.metadata.distribution(name).files or []
        except importlib.metadata.PackageNotFoundError:  # of another system
            continue
        for file in files:
            path = Path(str(file.locate()))
            if ".." not in file.parts and "__pycache__" not in file.parts and path.is_file():
                found[f"/opt/packages/{file}"] = path
    return found


def _kernel() -> Path:
    """Return a folder with Debian's kernel and its modules for arrays of disks, fetched once."""
    kept = CACHE / f"kernel-{SUITE}"
    if not kept.exists():
        about = _said("apt-cache", "depends", KERNEL)
        package = next(line.split()[-1] for line in about.splitlines() if "Depends:" in line)
        folder = CACHE / "kernel"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _said("apt-get", "download", package, cwd=folder)
        _said("dpkg", "-x", str(next(folder.glob("*.deb"))), str(folder / "in"))
        taken = folder / "taken"
        taken.mkdir()
        shutil.copy(next((folder / "in" / "boot").glob("vmlinuz-*")), taken / "vmlinuz")
        for name in MODULES:
            shutil.copy(next((folder / "in").rglob(f"{name}.ko")), taken)
        taken.rename(kept)
        shutil.rmtree(folder)
    return kept


def _root(packages: tuple[str, ...]) -> Path:
    """Return the archive of a Debian, made once."""
    digest = hashlib.sha256(repr(packages).encode()).hexdigest()[:12]
    kept = CACHE / f"root-{SUITE}-{digest}.cpio"
    if not kept.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        tar, unfinished = CACHE / "root.tar", CACHE / "unfinished.cpio"
        without = [f"--dpkgopt=path-exclude=/usr/share/{place}/*" for place in ("doc", "man", "locale", "info")]
        _said(
            *("mmdebstrap", "--quiet", "--variant=essential", f"--include={','.join(packages)}", *without),
            *(SUITE, str(tar)),
        )
        with unfinished.open("wb") as out:
            add_tar(out, tar)
        tar.unlink()
        unfinished.rename(kept)
    return kept


def _said(*words: str, cwd: Path | None = None) -> str:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, f"{' '.join(words)}:\n{(done.stdout + done.stderr)[-3000:]}"
    return done.stdout
