"""A real sshd on loopback, for the user who runs the tests."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Self

__all__ = ["SshServer"]

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class SshServer:
    """Listens while a `with` block lasts; `key` opens it.

    Args:
        folder: an empty place for its keys, and the home of who logs in.
    """

    def __init__(self, folder: Path, path: str = PATH) -> None:
        self.folder, self._path = folder, path
        self.key = folder / "user"
        self.port = 0

    @staticmethod
    def is_there() -> bool:
        """Return whether sshd and ssh are installed."""
        return bool(shutil.which("sshd", path=PATH) and shutil.which("ssh"))

    @property
    def command(self) -> list[str]:
        """The command of a client with a terminal, without the remote command."""
        options = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "IdentitiesOnly=yes"]
        given = [part for option in options for part in ("-o", option)]
        return ["ssh", "-F", "none", "-tt", "-p", str(self.port), "-i", str(self.key), *given, "127.0.0.1"]

    def __enter__(self) -> Self:
        self.folder.mkdir(mode=0o700)
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)], check=True)
        (self.folder / "authorized").write_text((self.folder / "user.pub").read_text())
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        (self.folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.folder}/host\nPidFile none\nUsePAM no\n"
            f"StrictModes no\nAuthorizedKeysFile {self.folder}/authorized\nPermitRootLogin yes\n"
            f"PasswordAuthentication no\n"
            f"SetEnv PATH={self._path} HOME={self.folder}\n"  # no start-up file of whoever runs the tests is read
        )
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        command = [shutil.which("sshd", path=PATH) or "sshd", "-D", "-e", "-f", str(self.folder / "sshd_config")]
        self._server = subprocess.Popen(command, stderr=subprocess.PIPE)
        assert self._server.stderr is not None and b"listening" in self._server.stderr.readline()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.kill()
        self._server.wait()
        assert self._server.stderr is not None
        self._server.stderr.close()
