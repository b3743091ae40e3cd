"""A real Matrix homeserver (Synapse) on a port of its own, and people who are there.

`synapse()` raises `NotInstalled` where there is none: it is large, and `make test-matrix` alone installs it.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from peers import install
from peers.running import free_port, running

__all__ = ["Member", "Synapse", "synapse"]

PASSWORD = "a-password-of-the-tests"
CONFIG = """
server_name: test
pid_file: {folder}/pid
listeners: [{{port: {port}, type: http, bind_addresses: [127.0.0.1], resources: [{{names: [client, media]}}]}}]
database: {{name: sqlite3, args: {{database: {folder}/db}}}}
media_store_path: {folder}/media
signing_key_path: {folder}/key
log_config: {folder}/log.yaml
enable_registration: true
enable_registration_without_verification: true
suppress_key_server_warning: true
report_stats: false
trusted_key_servers: []
macaroon_secret_key: x
form_secret: y
rc_message: {{per_second: 10000, burst_count: 10000}}
rc_registration: {{per_second: 10000, burst_count: 10000}}
rc_login:
  address: {{per_second: 10000, burst_count: 10000}}
  account: {{per_second: 10000, burst_count: 10000}}
  failed_attempts: {{per_second: 10000, burst_count: 10000}}
rc_joins: {{local: {{per_second: 10000, burst_count: 10000}}}}
rc_invites: {{per_room: {{per_second: 10000, burst_count: 10000}}, per_user: {{per_second: 10000, burst_count: 10000}}}}
"""
LOG = "version: 1\nhandlers: {out: {class: logging.StreamHandler}}\nroot: {level: WARNING, handlers: [out]}\n"


class Synapse(NamedTuple):
    """Where it is."""

    url: str

    def register(self, name: str) -> Member:
        """Make an account with the password `PASSWORD`."""
        body = {"username": name, "password": PASSWORD, "auth": {"type": "m.login.dummy"}}
        said = Member(self.url, "", "").call("POST", "register", body=body)
        return Member(self.url, said["user_id"], said["access_token"])


class Member:
    """Somebody with an account."""

    def __init__(self, url: str, user_id: str, token: str) -> None:
        self.url, self.id, self.token = url, user_id, token
        self._numbers = itertools.count()

    def call(self, method: str, *path: str, body: Any = None, **query: str) -> Any:
        """Call the client interface, and return what it says."""
        address = f"{self.url}/_matrix/client/v3/" + "/".join(quote(piece, safe="") for piece in path)
        return json.loads(self.ask(method, address + (f"?{urlencode(query)}" if query else ""), body))

    def ask(self, method: str, address: str, body: Any = None, kind: str = "application/json") -> bytes:
        """Ask, and return the bytes of the answer."""
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        headers = {"content-type": kind, **({"authorization": f"Bearer {self.token}"} if self.token else {})}
        request = urllib.request.Request(address, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as exc:
            raise RuntimeError(f"{method} {address}: {exc.read().decode()}") from exc

    def make_room(self, *invited: str, **more: Any) -> str:
        """Make a room and return its id."""
        body = {"preset": "private_chat", "invite": list(invited), **more}
        return str(self.call("POST", "createRoom", body=body)["room_id"])

    def join(self, room: str) -> None:
        """Come into a room."""
        self.call("POST", "join", room, body={})

    def send(self, room: str, content: Any, kind: str = "m.room.message") -> str:
        """Send an event and return its id."""
        said = self.call("PUT", "rooms", room, "send", kind, f"t{id(self)}-{next(self._numbers)}", body=content)
        return str(said["event_id"])

    def say(self, room: str, text: str, **more: Any) -> str:
        """Write into a room."""
        return self.send(room, {"msgtype": "m.text", "body": text, **more})

    def upload(self, data: bytes, name: str, kind: str) -> str:
        """Keep a file at the homeserver."""
        address = f"{self.url}/_matrix/media/v3/upload?{urlencode({'filename': name})}"
        return str(json.loads(self.ask("POST", address, data, kind))["content_uri"])

    def download(self, address: str) -> bytes:
        """Fetch a file."""
        return self.ask("GET", f"{self.url}/_matrix/client/v1/media/download/{address.removeprefix('mxc://')}")

    def timeline(self, room: str) -> list[dict[str, Any]]:
        """Return the last events of a room, the oldest first."""
        return list(self.call("GET", "rooms", room, "messages", dir="b", limit="100")["chunk"])[::-1]

    def members(self, room: str) -> set[str]:
        """Return who is there."""
        return set(self.call("GET", "rooms", room, "joined_members")["joined"])


@contextlib.contextmanager
def synapse(folder: Path) -> Iterator[Synapse]:
    """Run one without limits on rates."""
    packages = install.synapse()
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    (folder / "log.yaml").write_text(LOG)
    (folder / "key").write_text(f"ed25519 a_test {base64.b64encode(bytes(32)).decode().rstrip('=')}\n")
    (folder / "homeserver.yaml").write_text(CONFIG.format(folder=folder, port=port))
    environ = {"PYTHONPATH": str(packages)}
    command = [sys.executable, "-m", "synapse.app.homeserver", "-c", str(folder / "homeserver.yaml")]
    with running(command, host="127.0.0.1", port=port, path="/_matrix/client/versions", environ=environ):
        yield Synapse(f"http://127.0.0.1:{port}")
