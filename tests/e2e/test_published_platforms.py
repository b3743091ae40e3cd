"""Published platform plugins connect to a stand-in of their service, receive and send, through the whole gateway."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from compat.corpus.install import CannotInstall, installed
from compat.corpus.lists import DATA, plugins
from peers.irc import certificate

TALK = Path(__file__).resolve().parents[1] / "compat" / "published" / "talk.py"
PLATFORMS = tomllib.loads((DATA / "platforms.toml").read_text(encoding="utf-8"))["platform"]
CHOSEN = PLATFORMS if os.environ.get("HERMES_ALL_PLATFORMS") else PLATFORMS[:1]
"""`make compat` talks with all."""

pytestmark = [pytest.mark.compat, pytest.mark.timeout(600)]

ALONE = """
set -e
mount --make-rprivate /
mount --bind "$1" /etc/hosts
ip link set lo up
ip addr add 1.2.3.4/32 dev lo
shift
exec "$@"
"""


def alone(hosts: Path) -> list[str]:
    """Return what gives a command a network of its own, in which these hosts are; skip where that cannot be."""
    command = ["unshare", "-n", "-m", "sh", "-c", ALONE, "sh", str(hosts)]
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("there is no unshare or no ip (packaging/debian-packages test installs them)")
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("a network of its own needs root")
    return command


@pytest.mark.parametrize("about", CHOSEN, ids=lambda about: str(about["plugin"]))
def test_a_published_platform_hears_and_answers(about: dict[str, object], tmp_path: Path) -> None:
    (plugin,) = (plugin for plugin in plugins([str(about["plugin"])]) if plugin.listing == "open.txt")
    try:
        site = installed(plugin)
    except CannotInstall as exc:
        pytest.skip(f"pip cannot install it: {exc}")
    names = [str(name) for name in about["hosts"]]  # type: ignore[attr-defined]
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n" + "".join(f"1.2.3.4 {name}\n" for name in names))
    environ = dict(os.environ)
    if names:  # aiohttp looks at the variable while it is imported
        environ["SSL_CERT_FILE"] = certificate(tmp_path, ",".join(f"DNS:{name}" for name in names))

    command = [*alone(hosts), sys.executable, str(TALK), plugin.name, str(site), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environ, check=False)

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
