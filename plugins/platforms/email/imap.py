"""Minimal IMAP client for a watched mailbox. Sources: RFC 3501, RFC 2177 (IDLE)."""

import asyncio
import base64
import itertools
import re
import ssl

COMMAND_S = 60.0
CONNECT_S = 30.0
_LITERAL = re.compile(rb"\{(\d+)\}$")
_LONGEST_LINE = 2**20


class ImapRejected(Exception):
    """Error: the server answered NO or BAD."""


class Imap:
    """A connection."""

    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer
        self._tags = (f"h{number}" for number in itertools.count(1))
        self.capabilities = frozenset()
        self.news = False
        """Whether the server reported new mail since the last search."""

    @classmethod
    async def open(cls, host, port, security, user, password):
        """Connect and log in; raises OSError, TimeoutError, ImapRejected."""
        tls = ssl.create_default_context() if security != "none" else None
        direct = tls if security == "tls" else None
        async with asyncio.timeout(CONNECT_S):
            self = cls(*await asyncio.open_connection(host, port, ssl=direct, limit=_LONGEST_LINE))
            try:
                await self._response()  # the greeting
                if security == "starttls":
                    await self.command("STARTTLS")
                    await self._writer.start_tls(tls, server_hostname=host)
                credentials = base64.b64encode(f"\0{user}\0{password}".encode()).decode()
                await self.command("AUTHENTICATE PLAIN", continuation=credentials)
                await self._ask_capabilities()
            except BaseException:
                self.close()
                raise
        return self

    async def _ask_capabilities(self):
        for line, _ in await self.command("CAPABILITY"):
            if line.upper().startswith(b"* CAPABILITY"):
                self.capabilities = frozenset(line.decode().upper().split()[2:])

    async def command(self, text, continuation=None):
        """Send a command; return the untagged responses with their literals. Raises ImapRejected."""
        tag = next(self._tags)
        self._writer.write(f"{tag} {text}\r\n".encode())
        async with asyncio.timeout(COMMAND_S):
            return await self._until(tag, text.split()[0], continuation)

    async def _until(self, tag, name, continuation=None):
        responses = []
        while True:
            line, literals = await self._response()
            if line.startswith(b"+") and continuation is not None:
                self._writer.write(continuation.encode() + b"\r\n")
            elif line.startswith(tag.encode() + b" "):
                status = line.split()[1].upper()
                if status != b"OK":
                    text = line.partition(b" ")[2].decode(errors="replace")
                    raise ImapRejected(f"{name}: {text}")
                return responses
            else:
                responses.append((line, literals))

    async def _response(self):
        """Return a response without its literals, and the literals."""
        whole, literals = b"", []
        while True:
            raw = await self._reader.readline()
            if not raw:
                raise ConnectionError("the IMAP server closed the connection")
            line = raw.rstrip(b"\r\n")
            whole += line
            found = _LITERAL.search(line)
            if found is None:
                self.news = self.news or re.match(rb"\* \d+ EXISTS", whole) is not None
                return whole, literals
            literals.append(await self._reader.readexactly(int(found[1])))

    async def select(self, folder):
        """Open a folder and return `(UIDVALIDITY, UIDNEXT)`; the latter is 0 if the server does not send it."""
        lines = b" ".join(line for line, _ in await self.command(f"SELECT {quoted(folder)}"))
        numbers = {}
        for name in (b"UIDVALIDITY", b"UIDNEXT"):
            found = re.search(rb"\[" + name + rb" (\d+)\]", lines)
            numbers[name] = int(found[1]) if found else 0
        return numbers[b"UIDVALIDITY"], numbers[b"UIDNEXT"]

    async def uids_above(self, uid):
        """Return the ids of messages above `uid`, in order."""
        self.news = False
        lines = [line for line, _ in await self.command(f"UID SEARCH UID {uid + 1}:*")]
        found = {int(n) for line in lines if line.upper().startswith(b"* SEARCH") for n in line.split()[2:]}
        return sorted(n for n in found if n > uid)  # "n:*" also matches the last message if it is below n

    async def fetch(self, uid, limit, beginning):
        """Return the bytes and size of a message; above `limit` only its start; None if it is gone."""
        size = 0
        for line, _ in await self.command(f"UID FETCH {uid} (RFC822.SIZE)"):
            found = re.search(rb"RFC822\.SIZE (\d+)", line)
            size = int(found[1]) if found else size
        part = "BODY.PEEK[]" if size <= limit else f"BODY.PEEK[]<0.{beginning}>"
        for line, literals in await self.command(f"UID FETCH {uid} ({part})"):
            if b"FETCH" in line and literals:
                return literals[0], size
        return None, size

    async def mark_seen(self, uid):
        await self.command(f"UID STORE {uid} +FLAGS.SILENT (\\Seen)")

    async def idle(self, seconds):
        """Wait for a change in the folder, at most `seconds`."""
        tag = next(self._tags)
        self._writer.write(f"{tag} IDLE\r\n".encode())
        async with asyncio.timeout(COMMAND_S):
            while not (await self._response())[0].startswith(b"+"):
                pass
        try:
            async with asyncio.timeout(seconds):
                while not self.news:
                    await self._response()
        except TimeoutError:
            pass  # readline keeps the part of a line that has arrived
        self._writer.write(b"DONE\r\n")
        async with asyncio.timeout(COMMAND_S):
            await self._until(tag, "IDLE")

    def close(self):
        self._writer.write(b"bye LOGOUT\r\n")
        self._writer.close()


def quoted(text):
    """Return a quoted string. Raises ValueError for a name that has none."""
    if not text.isascii() or any(ord(c) < 32 for c in text):
        raise ValueError(f"invalid folder {text!r}: write it in modified UTF-7, as IMAP does")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
