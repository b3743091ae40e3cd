"""The container's root: a copy-on-write view of another root, dressed so that only the units under test exist."""

from __future__ import annotations

import os
import re
import shutil
import stat
import uuid
from pathlib import Path

from run_in_systemd.plan import INSIDE, NAME, Plan
from run_in_systemd.shell import sh, write

__all__ = ["make_root"]

MASKED = """
    systemd-udevd.service systemd-udev-trigger.service systemd-udev-settle.service
    systemd-udevd-control.socket systemd-udevd-kernel.socket
    systemd-modules-load.service systemd-sysctl.service systemd-binfmt.service
    systemd-firstboot.service systemd-hwdb-update.service systemd-timesyncd.service
    systemd-networkd.service systemd-networkd.socket systemd-resolved.service
    systemd-network-generator.service systemd-logind.service dbus-org.freedesktop.login1.service
    systemd-random-seed.service
    systemd-journald-audit.socket systemd-boot-update.service systemd-pstore.service
    systemd-vconsole-setup.service systemd-machine-id-commit.service
    systemd-tpm2-setup.service systemd-tpm2-setup-early.service
    systemd-repart.service systemd-homed.service systemd-userdbd.socket
    sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount
    sys-fs-fuse-connections.mount dev-hugepages.mount dev-mqueue.mount
    proc-sys-fs-binfmt_misc.automount proc-sys-fs-binfmt_misc.mount
    getty.target console-getty.service getty@tty1.service serial-getty@ttyS0.service
    systemd-ask-password-console.path systemd-ask-password-wall.path
    systemd-ssh-generator.service ldconfig.service remote-fs.target
""".split()  # noqa: SIM905 - 44 names in quotes would be harder to read
"""Units of systemd that make no sense in a container or would show it the host's state."""

USERS = frozenset(("systemd-logind.service", "dbus-org.freedesktop.login1.service"))
"""Of these, what the managers of users need."""

OVERLAID = {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "bcachefs", "zfs"}
"""File systems mounted below / that are shown too; an overlay alone does not show them."""
_NOT_OVERLAID = re.compile(r"/(proc|sys|dev|run|tmp|boot|efi|mnt|media)(/|$)")
_GENERATORS = ("/lib/systemd", "/usr/lib/systemd", "/usr/local/lib/systemd")

JOURNALD = """[Journal]
Storage=volatile
Audit=no
ReadKMsg=no
ForwardToSyslog=no
ForwardToWall=no
ForwardToConsole=no
ForwardToKMsg=no
RateLimitIntervalSec=0
"""
TARGET = f"""[Unit]
Description={NAME}
Requires=basic.target
Wants=multi-user.target {NAME}.service
After=basic.target
AllowIsolate=yes
"""
SERVICE = f"""[Unit]
Description={NAME} script
After=basic.target dbus.socket
[Service]
Type=exec
ExecStart=/bin/sh {INSIDE}/runner
ExecStopPost=/bin/sh -c 'echo "gone $SERVICE_RESULT $EXIT_CODE $EXIT_STATUS" >{INSIDE}/ctl'
StandardInput=null
StandardOutput=file:{INSIDE}/out
StandardError=file:{INSIDE}/err
TimeoutStartSec=infinity
TimeoutStopSec=5
SendSIGHUP=no
"""


def make_root(plan: Plan) -> str:
    """Mount and dress the root in the present mount namespace; return its path."""
    top = f"{plan.directory}/mnt"
    root = f"{top}/root"
    # The upper layers are on a tmpfs: they may not lie inside their own lower layer.
    sh("mount", "-t", "tmpfs", "-o", f"mode=0755,size={plan.writable_size}", NAME, top)
    os.mkdir(root)
    is_known = bool(plan.kept) and os.path.isdir(f"{plan.kept}/root.up")
    _overlay(plan.root, plan.kept or top, "root", root)
    if plan.root == "/":
        _overlay_mounts_below(top, root)
    if not is_known:  # a machine that boots again has all of this
        _hide_host_units(root, USERS if plan.logins else frozenset())
        _new_identity(root, plan.hostname)
        _install_units(root, plan)
    return root


def _overlay(lower: str, scratch: str, tag: str, at: str) -> None:
    upper, work = f"{scratch}/{tag}.up", f"{scratch}/{tag}.work"
    os.makedirs(upper, exist_ok=True)
    os.makedirs(work, exist_ok=True)
    status = os.stat(lower)
    os.chmod(upper, stat.S_IMODE(status.st_mode))
    os.chown(upper, status.st_uid, status.st_gid)
    escaped = re.sub(r"([\\:,])", r"\\\1", lower)
    sh("mount", "-t", "overlay", "-o", f"lowerdir={escaped},upperdir={upper},workdir={work}", NAME, at)


def _overlay_mounts_below(top: str, root: str) -> None:
    seen = {"/"}
    for number, line in enumerate(Path("/proc/mounts").read_text().splitlines()):
        _, at, kind = line.split()[:3]
        at = at.encode().decode("unicode_escape")
        if kind in OVERLAID and at not in seen and os.path.isdir(at) and not _NOT_OVERLAID.match(at):
            seen.add(at)
            os.makedirs(root + at, exist_ok=True)
            _overlay(at, top, f"m{number}", root + at)


def _hide_host_units(root: str, shown: frozenset[str]) -> None:
    config = f"{root}/etc/systemd"
    for name in (
        "system", "system.control", "system.attached", "system-generators",
        "system-preset", "system.conf.d", "journald.conf.d", "user",
    ):  # fmt: skip
        shutil.rmtree(f"{config}/{name}", ignore_errors=True)
    shutil.rmtree(f"{root}/usr/local/lib/systemd", ignore_errors=True)
    os.makedirs(f"{config}/system")
    os.makedirs(f"{config}/system-generators")
    for unit in MASKED:
        if unit not in shown:
            os.symlink("/dev/null", f"{config}/system/{unit}")
    for directory in _GENERATORS:
        generators = Path(f"{root}{directory}/system-generators")
        for generator in generators.iterdir() if generators.is_dir() else ():
            mask = f"{config}/system-generators/{generator.name}"
            if not os.path.lexists(mask):
                os.symlink("/dev/null", mask)


def _new_identity(root: str, hostname: str) -> None:
    etc = f"{root}/etc"
    for name in ("machine-id", "hostname", "fstab"):
        if os.path.lexists(f"{etc}/{name}"):
            os.unlink(f"{etc}/{name}")
    # An empty machine id would mean a first boot, which enables every unit by preset.
    write(f"{etc}/machine-id", uuid.uuid4().hex + "\n", 0o444)
    write(f"{etc}/hostname", hostname + "\n")
    write(f"{etc}/fstab", "")
    write(f"{etc}/systemd/journald.conf.d/50-{NAME}.conf", JOURNALD)


def _install_units(root: str, plan: Plan) -> None:
    units = f"{root}/etc/systemd/system"
    write(f"{units}/{NAME}.target", TARGET)
    write(f"{units}/{NAME}.service", SERVICE)
    os.symlink(f"{NAME}.target", f"{units}/default.target")
    for name, source in plan.units.items():
        target = f"{units}/{name}"
        if os.path.lexists(target):
            os.unlink(target)
        if os.path.isdir(source):
            shutil.copytree(source, target)
        else:
            shutil.copyfile(source, target)
            os.chmod(target, 0o644)
    for unit in plan.enable:
        sh("systemctl", f"--root={root}", "--quiet", "enable", unit)
