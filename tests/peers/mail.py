"""A real mailbox (Debian's dovecot) and an SMTP server (aiosmtpd) on ports of their own.

`dovecot()` raises `NotInstalled` where there is none. `Post` keeps what it is given, with the recipients.
"""

from __future__ import annotations

import contextlib
import getpass
import imaplib
import os
import shutil
import ssl
import tempfile
import threading
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any, NamedTuple

from peers.install import NotInstalled
from peers.irc import certificate
from peers.running import free_port, running

__all__ = ["Mailbox", "Post", "dovecot"]

PASSWORD = 'pass "word\\ 1'

CONFIG = """
protocols = imap
listen = 127.0.0.1
base_dir = {folder}/run
state_dir = {folder}/run
log_path = {folder}/log
ssl = yes
ssl_cert = <{certificate}
ssl_key = <{folder}/key.pem
mail_location = maildir:{folder}/mail/%u
disable_plaintext_auth = no
auth_mechanisms = plain
first_valid_uid = 1
{users}
passdb {{
  driver = passwd-file
  args = scheme=PLAIN username_format=anybody {folder}/users
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={folder}/mail/%u
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = {tls_port}
    ssl = yes
  }}
}}
service anvil {{
  chroot =
}}
"""


class Mailbox(NamedTuple):
    """Where it is, and whose."""

    port: int
    tls_port: int
    certificate: str
    user: str

    @contextlib.contextmanager
    def opened(self) -> Iterator[imaplib.IMAP4]:
        """A client of it."""
        with imaplib.IMAP4("127.0.0.1", self.port) as client:
            client.login(self.user, PASSWORD)
            yield client

    def put(self, *mails: EmailMessage | bytes, folder: str = "INBOX") -> None:
        """Deliver mails."""
        with self.opened() as client:
            for mail in mails:
                status, said = client.append(folder, "", "", bytes(mail))
                assert status == "OK", said

    def seen(self) -> list[bool]:
        """Say of each mail whether it was marked as read."""
        with self.opened() as client:
            client.select("INBOX")
            _, said = client.fetch("1:*", "(FLAGS)")
            return [b"\\Seen" in line for line in said if isinstance(line, bytes)]


@contextlib.contextmanager
def dovecot() -> Iterator[Mailbox]:
    """Run a dovecot where every user has a mailbox, with the password `PASSWORD`."""
    program = shutil.which("dovecot", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        raise NotInstalled("there is no dovecot (packaging/debian-packages test installs it)")
    with tempfile.TemporaryDirectory(prefix="dovecot-", dir="/tmp") as place:  # its sockets want a short path
        folder = Path(place)
        folder.chmod(0o755)
        (folder / "mail").mkdir(mode=0o777)
        (folder / "mail").chmod(0o777)
        uid, gid = (65534, 65534) if os.getuid() == 0 else (os.getuid(), os.getgid())
        me = getpass.getuser()
        own = f"default_internal_user = {me}\ndefault_login_user = {me}\n" if os.getuid() else ""
        (folder / "users").write_text(f"anybody:{PASSWORD}\n")
        port, tls_port, made = free_port(), free_port(), certificate(folder)
        values = {"uid": uid, "gid": gid, "users": own, "port": port, "tls_port": tls_port}
        (folder / "dovecot.conf").write_text(CONFIG.format(folder=folder, certificate=made, **values))
        command = [program, "-F", "-c", str(folder / "dovecot.conf")]
        try:
            with running(command, host="127.0.0.1", port=port, path="", environ={}):
                yield Mailbox(port, tls_port, made, "agent@example.org")
        except RuntimeError as exc:
            log = folder / "log"
            raise RuntimeError(f"{exc}\n{log.read_text() if log.exists() else ''}") from exc


class Post:
    """An SMTP server that wants the password. It refuses recipients that begin with `nobody`, and `later` for now."""

    def __init__(self, folder: Path, *, tls: bool = True) -> None:
        from aiosmtpd.controller import Controller  # of requirements/dev.txt
        from aiosmtpd.smtp import AuthResult, LoginPassword

        self.received: list[EmailMessage] = []
        self.changed = threading.Condition()
        self.certificate = certificate(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, folder / "key.pem")

        def check(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> Any:
            assert isinstance(data, LoginPassword)
            return AuthResult(success=data.password.decode() == PASSWORD, handled=False)

        self._controller = Controller(
            self,
            hostname="127.0.0.1",
            port=free_port(),
            tls_context=context if tls else None,
            require_starttls=tls,
            auth_required=True,
            auth_require_tls=tls,
            authenticator=check,
        )

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._controller.port)

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if address.startswith("nobody"):
            return "550 5.1.1 no such mailbox"
        if address.startswith("later"):
            return "451 4.7.1 greylisted, come again"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        import email
        import email.policy

        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        assert envelope.rcpt_tos == [address.addr_spec for address in message["To"].addresses]
        with self.changed:
            self.received.append(message)
            self.changed.notify_all()
        if "hang up" in str(message["Subject"]):
            server.transport.abort()
        return "250 taken"

    def __enter__(self) -> Post:
        self._controller.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._controller.stop()
