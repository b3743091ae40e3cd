"""A real XMPP server (prosody, Debian's package) on a port of its own, and people who are there, with slixmpp.

`prosody(folder)` runs one while the block lasts; it raises `NotInstalled` where there is none.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from peers.irc import certificate, program
from peers.running import free_port, running

__all__ = ["DOMAIN", "PASSWORD", "ROOMS", "Person", "XmppServer", "prosody"]

WAIT_S = 60.0
DOMAIN, ROOMS, PASSWORD = "chat.test", "rooms.chat.test", "a-password-of-the-tests"
ACCOUNTS = ("hermes", "ann", "bob")
CONFIG = """
pidfile = "{folder}/pid"
data_path = "{folder}/data"
run_as_root = true
daemonize = false
log = {{ {{ levels = {{ min = "warn" }}, to = "console" }} }}
interfaces = {{ "127.0.0.1" }}
c2s_ports = {{ {port} }}
s2s_ports = {{ }}
http_ports = {{ {http} }}
https_ports = {{ }}
modules_enabled = {{ "roster", "saslauth", "tls", "disco", "ping", "smacks", "offline", "carbons" }}
modules_disabled = {{ "s2s" }}
authentication = "internal_plain"
c2s_require_encryption = true
smacks_hibernation_time = 15
limits = {{ c2s = {{ rate = "10mb/s" }} }}
ssl = {{ key = "{folder}/key.pem", certificate = "{folder}/certificate.pem" }}

VirtualHost "chat.test"
disco_items = {{ {{ "files.chat.test" }} }}

Component "rooms.chat.test" "muc"
modules_enabled = {{ "muc_mam" }}
muc_room_default_public_jids = true
muc_room_locking = false
restrict_room_creation = false

Component "files.chat.test" "http_file_share"
http_host = "127.0.0.1"
http_external_url = "http://127.0.0.1:{http}/"
http_file_share_size_limit = 1000000
"""


class XmppServer(NamedTuple):
    """Where it listens; `certificate` is the file of its authority."""

    host: str
    port: int
    certificate: str


@contextlib.contextmanager
def prosody(folder: Path) -> Iterator[XmppServer]:
    """Run a prosody with the accounts `ACCOUNTS`, whose password is `PASSWORD`."""
    found = program("prosody")
    port, http = free_port(), free_port()
    made = certificate(folder, f"DNS:{DOMAIN}")
    config = folder / "prosody.cfg.lua"
    config.write_text(CONFIG.format(folder=folder, port=port, http=http))
    accounts = folder / "data" / "chat%2etest" / "accounts"
    accounts.mkdir(parents=True)
    for name in ACCOUNTS:
        (accounts / f"{name}.dat").write_text(f'return {{ ["password"] = "{PASSWORD}" }};')
    command = [found, "--config", str(config), "-F"]
    environ = {**os.environ, "LC_ALL": "C.UTF-8"}
    with running(command, host="127.0.0.1", port=port, path="", environ=environ):
        yield XmppServer("127.0.0.1", port, made)


class Person:
    """Somebody with an account."""

    def __init__(self, name: str) -> None:
        self.name, self.jid = name, f"{name}@{DOMAIN}"
        self.heard: list[Any] = []
        self._news = asyncio.Event()

    async def come(self, server: XmppServer, *rooms: str) -> Person:
        """Sign in, and enter rooms."""
        import ssl

        from slixmpp import JID, ClientXMPP
        from slixmpp.xmlstream.handler import Callback
        from slixmpp.xmlstream.matcher import MatchXPath

        self.client: Any = ClientXMPP(self.jid, PASSWORD)
        self.client.ssl_context = ssl.create_default_context(cafile=server.certificate)
        self.client.enable_direct_tls = False
        self.client.register_plugin("xep_0045")
        self.client.register_handler(Callback("all", MatchXPath("{jabber:client}message"), self._take))
        started = asyncio.get_running_loop().create_future()
        self.client.add_event_handler("session_start", started.set_result, disposable=True)
        self.client.connect(server.host, server.port)
        await asyncio.wait_for(started, WAIT_S)
        self.client.send_presence()
        for room in rooms:
            await self.client.plugin["xep_0045"].join_muc_wait(JID(room), self.name, maxstanzas=0, timeout=WAIT_S)
        return self

    def _take(self, stanza: Any) -> None:
        self.heard.append(stanza)
        self._news.set()

    def say(self, to: str, text: str, *more: str, kind: str = "", identity: str = "") -> str:
        """Write to somebody or a room; return the message's id.

        Args:
            more: further elements of the message, as XML.
        """
        message = self.client.make_message(to, mtype=kind or ("groupchat" if to.endswith(ROOMS) else "chat"))
        message["id"] = identity or self.client.new_id()
        if text:
            message["body"] = text
        for element in more:
            message.xml.append(ET.fromstring(element))
        message.send()
        return str(message["id"])

    async def hear(self, part: str) -> Any:
        """Return the next message whose XML contains `part`, or one that was heard before and nobody waited for."""
        async with asyncio.timeout(WAIT_S):
            while True:
                for stanza in self.heard:
                    if part in str(stanza):
                        self.heard.remove(stanza)
                        return stanza
                self._news.clear()
                await self._news.wait()

    async def leave(self) -> None:
        """Sign out."""
        await self.client.disconnect(wait=1.0)
