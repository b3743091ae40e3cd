"""Connection to one server: registration, rate limit, and confirmation of sent lines."""

import asyncio
import base64
import itertools
import logging
import re
import ssl

from . import lines
from .lines import fold

logger = logging.getLogger(__name__)

REGISTRATION_S = 60.0
HANDSHAKE_S = 10.0
CONFIRMATION_S = 60.0
FAREWELL_S = 1.0
WANTED_CAPABILITIES = ("message-tags", "server-time", "account-tag", "echo-message")
NICK_TAKEN = ("433", "436", "437")
FINAL = {"464": "wrong_password", "465": "banned"}
"""Numerics during registration after which a retry would fail, too."""
SASL_FAILED = ("902", "904", "905", "906", "908")
SHORTER_NICKS = (30, 20, 16, 15, 12, 9)
"""Lengths that are tried if a server rejects a longer nick before it has sent its limit."""
NOT_SENT = {
    **dict.fromkeys(("401", "402", "403"), "not_found"),
    **dict.fromkeys(("404", "408", "442", "474", "477", "482", "484", "486", "489", "494", "531", "716"), "forbidden"),
    **dict.fromkeys(("407", "411", "412", "413", "414", "415"), "bad_format"),
    "416": "too_long",
    "417": "too_long",
    "437": "transient",
    "439": "rate_limited",
}
"""Numerics that report a line that did not reach its target, with the kind of the failure."""
TOO_FAST = re.compile(r"(?i)throttl|flood|too fast|slow down|rate.?limit|target change")


class IrcRefused(Exception):
    """Error: the server rejected the connection; a short code, and the text of the server."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class IrcSend:
    """Lines that are being sent to a target: their ids, the number of rejected lines, and the reason."""

    def __init__(self, target):
        self.target, self.ids = fold(target), []
        self.refused, self.error, self.kind = 0, "", ""
        self.confirmed = asyncio.get_running_loop().create_future()

    def refuse(self, error, kind):
        """Record a line that did not arrive; the first reason is kept."""
        self.refused += 1
        if not self.error:
            self.error, self.kind = error, "rate_limited" if TOO_FAST.search(error) else kind


async def _streams(server, port, tls):
    """Connect. Raises OSError, with the name of the setting if the port does not use TLS."""
    if tls is None:
        return await asyncio.open_connection(server, port)
    try:
        return await asyncio.open_connection(server, port, ssl=tls, ssl_handshake_timeout=HANDSHAKE_S)
    except ssl.SSLCertVerificationError:
        raise
    except (ssl.SSLError, ConnectionAbortedError, ConnectionResetError) as exc:
        text = f"no TLS at port {port} ({exc}): a server without TLS needs platforms.irc.use_tls: false"
        raise OSError(text) from exc


class IrcConnection:
    """A connection to a server.

    Args:
        settings: those of the platform.
        on_line: awaited with each line that is not handled here.
    """

    def __init__(self, settings, on_line):
        self.settings, self.on_line = settings, on_line
        self.nick = settings.nickname
        self.nick_limit = 0  # 0 until the server sends it
        self.prefix_bytes = lines.PREFIX_BYTES
        self.capabilities = set()
        self._offered = set()
        self._deliveries = {}
        self._tokens = itertools.count(1)
        self._writing = asyncio.Lock()
        self._allowance, self._counted_at = float(settings.flood_burst), 0.0
        self._reader = self._writer = None
        self._ended = False

    async def open(self):
        """Connect and register. Raises OSError, TimeoutError, IrcRefused."""
        settings, tls = self.settings, None
        if settings.use_tls:
            tls = ssl.create_default_context()
            if settings.tls_certificate:
                tls.load_cert_chain(settings.tls_certificate)
        port = settings.port or (6697 if tls else 6667)
        async with asyncio.timeout(REGISTRATION_S):
            self._reader, self._writer = await _streams(settings.server, port, tls)
            self._put("CAP LS 302")
            if settings.server_password:
                self._put(f"PASS :{settings.server_password}")
            self._put(f"NICK {self.nick}")
            self._put(f"USER {settings.nickname[:10]} 0 * :{settings.nickname}")
            await self._register()

    @property
    def wanted_nick(self):
        """The configured nick, shortened to the limit of the server."""
        return self.settings.nickname[: self.nick_limit or None]

    def _next_nick(self, line, tries):
        """Return the nick to request after a rejection. Raises IrcRefused if there is none."""
        if line.command in NICK_TAKEN:
            seen = line.param(1)
            if len(seen) < len(self.nick) and fold(self.nick).startswith(fold(seen)) and seen:
                self.nick_limit = len(seen)  # it shortened the requested nick
            mark = "_" * tries if tries <= 3 else str(tries)
            return self.settings.nickname[: self.nick_limit - len(mark) if self.nick_limit else None] + mark
        self.nick_limit = next((length for length in SHORTER_NICKS if length < len(self.nick)), 0)
        if not self.nick_limit:
            raise IrcRefused("bad_nickname", line.param(-1))
        return self.wanted_nick

    def _read_limits(self, line):
        """Store the nick limit that the server announces (ISUPPORT)."""
        for word in line.params[1:-1]:
            name, _, value = word.partition("=")
            if name.upper() == "NICKLEN" and value.isdigit() and int(value) > 0:
                self.nick_limit = int(value)

    async def _register(self):
        tries = 0
        while True:
            line = await self._line()
            if line.command == "001":
                given = line.param(0) or self.nick
                if len(given) < len(self.nick) and fold(self.nick).startswith(fold(given)):
                    self.nick_limit = len(given)
                self.nick = given
                return
            if line.command == "CAP":
                self._capability(line)
            elif line.command == "AUTHENTICATE":
                self._put(f"AUTHENTICATE {self._credentials()}")
            elif line.command == "903":
                self._put("CAP END")
            elif line.command in SASL_FAILED:
                raise IrcRefused("sasl_failed", f"the server rejected the account: {line.param(-1)}")
            elif line.command in (*NICK_TAKEN, "432"):
                tries += line.command in NICK_TAKEN
                self.nick = self._next_nick(line, tries)
                self._put(f"NICK {self.nick}")
            elif line.command in FINAL:
                raise IrcRefused(FINAL[line.command], line.param(-1))

    def _capability(self, line):
        kind, names = line.param(1).upper(), {word.partition("=")[0] for word in line.param(-1).split()}
        if kind == "LS":
            self._offered |= names
            if line.param(2) == "*":
                return  # more of the list follows
            wanted = [name for name in WANTED_CAPABILITIES if name in self._offered]
            if self.mechanism:
                if "sasl" not in self._offered:
                    raise IrcRefused(
                        "sasl_failed", "the server does not support SASL: empty platforms.irc.sasl_mechanism"
                    )
                wanted.append("sasl")
            self._put(f"CAP REQ :{' '.join(wanted)}" if wanted else "CAP END")
        elif kind == "ACK":
            self.capabilities |= names
            self._put(f"AUTHENTICATE {self.mechanism}" if "sasl" in names else "CAP END")
        elif kind == "NAK":
            if self.mechanism:
                raise IrcRefused("sasl_failed", "the server rejected SASL")
            self._put("CAP END")

    @property
    def mechanism(self):
        """SASL mechanism: PLAIN, EXTERNAL or ""."""
        return self.settings.sasl_mechanism.upper() or ("PLAIN" if self.settings.sasl_password else "")

    def _credentials(self):
        account = self.settings.sasl_account or self.settings.nickname
        if self.mechanism == "EXTERNAL":
            return base64.b64encode(self.settings.sasl_account.encode()).decode() or "+"
        credentials = f"{account}\0{account}\0{self.settings.sasl_password}"
        return base64.b64encode(credentials.encode()).decode()

    async def run(self, on_tick):
        """Handle lines until the connection ends, and call `on_tick()` each `ping_interval`."""
        loop, interval = asyncio.get_running_loop(), self.settings.ping_interval
        tick_at, asked = loop.time() + interval, False
        try:
            while True:
                try:
                    async with asyncio.timeout_at(tick_at):
                        line = await self._line()
                except TimeoutError:
                    if asked:
                        raise TimeoutError(f"the server sent nothing for {2 * interval:g} seconds") from None
                    asked = True
                    self._put("PING :still-there")
                else:
                    asked = False
                    await self._handle_line(line)
                if loop.time() >= tick_at:
                    tick_at = loop.time() + interval
                    on_tick()
        finally:
            self._ended = True
            for delivery in self._deliveries.values():
                delivery.confirmed.cancel()

    async def _handle_line(self, line):
        target = fold(line.param(0))
        if line.command == "PONG" and line.param(-1) in self._deliveries:
            delivery = self._deliveries.pop(line.param(-1))
            if not delivery.confirmed.done():
                delivery.confirmed.set_result(None)
        elif refused := self._refused(line):
            refused[0].refuse(*refused[1:])
        elif line.command == "005":
            self._read_limits(line)
            await self.on_line(line)
        elif line.command == "NICK" and fold(line.nick) == fold(self.nick):
            self.nick = line.param(0)
        elif line.command in ("PRIVMSG", "NOTICE", "TAGMSG") and fold(line.nick) == fold(self.nick):
            for delivery in self._deliveries_to(target)[:1] if "msgid" in line.tags else ():
                delivery.ids.append(line.tags["msgid"])
        else:
            if line.command == "JOIN" and fold(line.nick) == fold(self.nick):
                self.prefix_bytes = len(line.source.encode()) - len(line.nick.encode()) + 2
            await self.on_line(line)

    def _refused(self, line):
        """Return the delivery with a rejected line, the reason and its kind; None without a rejection.

        The server answers in order, so it is the oldest unconfirmed delivery to that target.
        """
        pending, kind = self._deliveries_to(fold(line.param(1))), NOT_SENT.get(line.command, "")
        text = f"{line.command} {line.param(-1)}"
        if line.command in ("263", "FAIL"):  # they name the command, not the target
            at = 1 if line.command == "263" else 0
            pending = list(self._deliveries.values()) if line.param(at).upper() == "PRIVMSG" else []
            kind = "rate_limited" if line.command == "263" else "forbidden"
        elif line.command == "NOTICE" and "!" not in line.source and TOO_FAST.search(line.param(-1)):
            words = {fold(word.strip(".,:;'\"")) for word in line.param(-1).split()}
            pending = [item for item in self._deliveries.values() if item.target in words]
            kind = "rate_limited"
        return (pending[0], text, kind) if kind and pending else None

    def _deliveries_to(self, target):
        return [delivery for delivery in self._deliveries.values() if delivery.target == target]

    async def deliver(self, target, texts, tags="", begin=None):
        """Send lines to one target together, and wait until the server has processed them.

        The server answers in order: its answer to the PING after the lines confirms them.

        Args:
            begin: awaited right before the first line is sent.

        Raises:
            ConnectionError: the connection has ended, and nothing was sent.
            TimeoutError: it is unknown which lines have arrived.
        """
        token, delivery = f"sent-{next(self._tokens)}", IrcSend(target)
        try:
            async with self._writing:
                for number, text in enumerate(texts):
                    await self._wait_pace()
                    if number == 0 and begin is not None:
                        await begin()
                    if self._ended or self._writer.is_closing():
                        raise TimeoutError("the rest was cut") if number else ConnectionError("not connected")
                    self._deliveries[token] = delivery
                    self._put(f"{tags}PRIVMSG {target} :{text}")
                self._put(f"PING :{token}")
            async with asyncio.timeout(CONFIRMATION_S):
                await asyncio.shield(delivery.confirmed)
        except asyncio.CancelledError:
            if not delivery.confirmed.cancelled():
                raise
            if delivery.refused < len(texts):
                raise TimeoutError("the line was cut") from None
        except TimeoutError:
            if delivery.refused < len(texts):
                raise
        finally:
            self._deliveries.pop(token, None)
        return delivery

    def room(self, target):
        """Return the limit of a text to `target`, in bytes."""
        return lines.LINE_BYTES - self.prefix_bytes - len(f"{self.nick}PRIVMSG {target} :\r\n".encode())

    @property
    def has_allowance(self):
        """Whether a line would be sent without a delay."""
        return self.settings.flood_interval <= 0 or self._allowance >= 1

    async def _wait_pace(self):
        """Wait until another line is within the rate limit."""
        interval, loop = self.settings.flood_interval, asyncio.get_running_loop()
        if interval <= 0:
            return
        now = loop.time()
        earned = (now - self._counted_at) / interval
        self._allowance = min(self._allowance + earned, float(self.settings.flood_burst)) - 1
        self._counted_at = now
        if self._allowance < 0:
            await asyncio.sleep(-self._allowance * interval)

    def command(self, text):
        """Send a protocol line at once, outside of the rate limit."""
        self._put(text)

    def _put(self, text):
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(text.replace("\r", " ").replace("\n", " ").encode() + b"\r\n")

    async def _line(self):
        while True:
            raw = await self._reader.readline()
            if not raw:
                raise ConnectionError("the server closed the connection")
            line = lines.parse(raw.decode(errors="replace").rstrip("\r\n"))
            if line.command == "PING":
                self._put(f"PONG :{line.param(-1)}")
            elif line.command == "ERROR":
                raise ConnectionError(f"the server closed the connection: {line.param(-1)}")
            elif line.command:
                return line

    async def close(self, reason=""):
        """Disconnect."""
        self._ended = True
        if self._writer is None:
            return
        self._put(f"QUIT :{reason}")
        self._writer.close()
        try:
            async with asyncio.timeout(FAREWELL_S):
                await self._writer.wait_closed()
        except (OSError, TimeoutError) as exc:
            logger.debug("[irc] closing the connection to %s: %s", self.settings.server, exc)
            self._writer.transport.abort()
