"""A real IRC server (ngircd or InspIRCd, Debian's packages) on a port of its own, and people who talk there.

`ngircd(folder)` and `inspircd(folder)` run one while the block lasts; both raise `NotInstalled` where there is none.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from peers.install import NotInstalled
from peers.running import free_port, running

__all__ = ["IrcServer", "Person", "certificate", "inspircd", "ngircd", "program"]

WAIT_S = 60.0

NGIRCD = """
[Global]
Name = irc.test
Info = a test
AdminEMail = admin@irc.test
Listen = 127.0.0.1
Ports = {port}
PidFile = {folder}/pid
{password}
[Limits]
MaxConnections = 500
MaxConnectionsIP = 500
MaxJoins = 100
MaxNickLength = {nick_length}
MaxPenaltyTime = 0
[Options]
DNS = no
Ident = no
PAM = no
{tls}
"""

INSPIRCD = """
<server name="irc.test" description="a test" network="Test" id="001">
<admin name="admin" nick="admin" email="admin@irc.test">
<bind address="127.0.0.1" port="{port}" type="clients">
<connect allow="*" timeout="60" threshold="1000" recvq="65536" commandrate="100000" fakelag="no" globalmax="500"
 localmax="500" modes="+x" resolvehostnames="no">
<options defaultmodes="" cyclehostsfromuser="no">
<path moduledir="/usr/lib/inspircd/modules" logdir="{folder}" datadir="{folder}" runtimedir="{folder}">
<pid file="{folder}/pid"><log method="file" type="* -USERINPUT -USEROUTPUT" level="default" target="{folder}/log">
<module name="cap"><module name="ircv3"><module name="ircv3_ctctags"><module name="ircv3_echomessage">
<module name="ircv3_msgid"><module name="ircv3_servertime"><module name="ircv3_accounttag">
<module name="services_account"><module name="spanningtree">
"""


class IrcServer(NamedTuple):
    """Where it listens."""

    host: str
    port: int
    certificate: str = ""
    """The file with its certificate, where it speaks TLS."""


@contextlib.contextmanager
def ngircd(
    folder: Path, *, port: int = 0, password: str = "", tls: bool = False, nick_length: int = 30
) -> Iterator[IrcServer]:
    """Run an ngircd: no flood protection.

    Args:
        port: 0 means any; the same one again after a restart.
        tls: on that port, with a certificate for 127.0.0.1.
        nick_length: longest nick.
    """
    found = program("ngircd")
    folder.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    made, section, plain = "", "", port
    if tls:
        made = certificate(folder)
        section = f"[SSL]\nCertFile = {made}\nKeyFile = {folder}/key.pem\nPorts = {port}\n"
        plain = free_port()
    said = f"Password = {password}" if password else ""
    (folder / "ngircd.conf").write_text(
        NGIRCD.format(port=plain, folder=folder, password=said, tls=section, nick_length=nick_length)
    )
    command = [found, "-n", "-f", str(folder / "ngircd.conf")]
    with running(command, host="127.0.0.1", port=port, path="", environ={}):
        yield IrcServer("127.0.0.1", port, made)


@contextlib.contextmanager
def inspircd(folder: Path) -> Iterator[IrcServer]:
    """Run an InspIRCd with message ids, echoes, server time and account tags."""
    found = program("inspircd")
    port = free_port()
    config = folder / "inspircd.conf"
    config.write_text(INSPIRCD.format(port=port, folder=folder))
    as_root = ["--runasroot"] if os.getuid() == 0 else []
    command = [found, "--nofork", *as_root, f"--config={config}"]
    with running(command, host="127.0.0.1", port=port, path="", environ={}):
        yield IrcServer("127.0.0.1", port)


class Person:
    """Somebody at a server. `heard` has every line that came and that nobody waited for."""

    def __init__(self, nick: str) -> None:
        self.nick, self.heard = nick, list[str]()

    async def come(self, server: IrcServer, *channels: str) -> Person:
        """Connect, and join channels."""
        self._reader, self._writer = await asyncio.open_connection(server.host, server.port)
        self.write(f"NICK {self.nick}", f"USER {self.nick} 0 * :{self.nick}")
        await self.hear(" 001 ")
        for channel in channels:
            self.write(f"JOIN {channel}")
            await self.hear(f" 366 {self.nick} {channel}")
        return self

    def write(self, *lines: str) -> None:
        """Write lines of the protocol."""
        self._writer.write("".join(f"{line}\r\n" for line in lines).encode())

    def say(self, target: str, text: str) -> None:
        """Write to a channel or a person."""
        self.write(f"PRIVMSG {target} :{text}")

    async def hear(self, part: str) -> str:
        """Return the next line that contains `part`, or one that was heard before and nobody waited for."""
        for line in self.heard:
            if part in line:
                self.heard.remove(line)
                return line
        async with asyncio.timeout(WAIT_S):
            while True:
                raw = await self._reader.readline()
                if not raw:
                    raise ConnectionError(f"{self.nick} is not connected any more")
                line = raw.decode().rstrip("\r\n")
                if line.startswith("PING"):
                    self.write("PONG" + line[4:])
                elif part in line:
                    return line
                else:
                    self.heard.append(line)

    async def all_heard(self) -> list[str]:
        """Return every line that the server has sent us by now, and forget them."""
        self.write("PING :all")
        await self.hear(":all")
        heard, self.heard = self.heard, []
        return heard

    async def leave(self) -> None:
        """End the connection."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


def program(name: str) -> str:
    """Return the path of a server's program.

    Raises:
        NotInstalled
    """
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        raise NotInstalled(f"there is no {name} (packaging/debian-packages test installs it)")
    return found


def certificate(folder: Path, name: str = "IP:127.0.0.1") -> str:
    """Make `key.pem` and a certificate in a folder, and return the path of the latter.

    Args:
        name: whom it is for: `IP:` an address, or `DNS:` a name.
    """
    made = folder / "certificate.pem"
    subject = f"/CN={name.partition(':')[2]}"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", subject]
    command += ["-addext", f"subjectAltName={name}", "-keyout", str(folder / "key.pem"), "-out", str(made)]
    subprocess.run(command, check=True, capture_output=True)
    return str(made)
