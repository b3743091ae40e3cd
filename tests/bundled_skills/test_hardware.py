"""The skill about hardware, in a virtual machine with a failing NVMe disk and a degraded array."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bundled_skills.conftest import FULL
from bundled_skills.system_subjects import HARDWARE
from bundled_skills.trial import WHOLE, files_of, problems, script_of
from vm.machine import boot, unavailable

BAD_SECTOR = 2048
UNRELIABLE = 4
"""The bit of NVMe's critical warnings for a degraded subsystem."""


def test_a_failing_disk_and_a_degraded_array_are_shown(tmp_path: Path) -> None:
    if not FULL:
        pytest.skip("a virtual machine takes minutes: HERMES_SKILLS_FULL=1 (make test-skills)")
    if why := unavailable():
        pytest.skip(f"no virtual machine: {why}")
    disks = [tmp_path / "failing.img", tmp_path / "lonely.img"]
    for disk in disks:
        with disk.open("wb") as file:
            file.truncate(64 << 20)
    errors = tmp_path / "errors.conf"
    errors.write_text(f'[inject-error]\nevent = "read_aio"\nerrno = "5"\nsector = "{BAD_SECTOR}"\n')
    drives = [f"file=blkdebug:{errors}:{disks[0]},format=raw", f"file={disks[1]},format=raw"]
    models = [f"serial=FAILING1,smart_critical_warning={UNRELIABLE}", "serial=LONELY2"]
    devices = []
    for n, (drive, model) in enumerate(zip(drives, models, strict=True)):
        devices += ["-drive", f"{drive},if=none,id=disk{n}", "-device", f"nvme,drive=disk{n},{model}"]
    said = boot(
        "#!/bin/sh\nbash /opt/trial 2>/run/errors || cat /run/errors\n",
        tmp_path,
        systemd=False,
        files={**files_of(HARDWARE, WHOLE), "/opt/trial": script_of(HARDWARE)},
        packages=("smartmontools", "lm-sensors", "mdadm", "kmod"),
        devices=devices,
        program=False,
    )
    assert said.startswith("{"), said
    found = problems(HARDWARE, json.loads(said))
    assert not found, "\n\n".join(found)
