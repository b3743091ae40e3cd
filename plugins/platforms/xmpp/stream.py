"""The connection of one account: TLS, sign-in, streams that are taken up again, and what the server has received."""

import asyncio
import logging
import ssl

from slixmpp import ClientXMPP
from slixmpp.exceptions import IqError, IqTimeout
from slixmpp.jid import JID
from slixmpp.plugins.xep_0030 import DiscoInfo
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher import MatchXPath

from . import stanzas

logger = logging.getLogger(__name__)

CONNECT_S = 45.0
PING_S = 30.0
FAREWELL_S = 5.0
WAITING = 256
"""Messages that may wait to be taken in (the disk is full, say); then nothing is read: the server keeps the rest."""
TRIES = 5
"""Rounds of connecting again, with pauses that grow to half a minute; then the runner is told."""
FINAL = {"conflict": "conflict", "host-unknown": "bad_address", "not-authorized": "wrong_password"}
"""Ends of a stream after which connecting again would not help."""


class XmppRefused(Exception):
    """The server does not want us: a short word, and why. `final`: trying again would not help."""

    def __init__(self, code, text, *, final=False):
        super().__init__(text)
        self.code, self.final = code, final


class XmppStream:
    """One account at its server.

    Args:
        take: `await take(stanza)` for each message, in order; the server is told that they arrived when it returned.
        resource: of the address. Whoever signs in with that of a stream that broke ends it, and is given what was not
            acknowledged there; otherwise that would wait until the server forgets the old stream.
        begun: called when a new stream has begun: nobody knows of us there.
        ended: `ended(exc)` when the connection is lost for good.
    """

    def __init__(self, settings, resource, take, begun, ended):
        self.settings = settings
        self._take, self._on_begin, self._on_end = take, begun, ended
        self._outcome = None
        self._failure, self._rounds = None, 0
        self._arrived, self._taking = asyncio.Queue(), None
        self._open, self._is_asked = 0, False
        self._closing = False
        self.is_held = False
        """Whether nothing is read from the server."""
        self.client = self._client(resource)

    def _client(self, resource):
        settings = self.settings
        client = ClientXMPP(f"{JID(settings.jid).bare}/{resource}", settings.password)
        client.enable_direct_tls = not settings.host or settings.tls == "direct"
        client.enable_starttls = not settings.host or settings.tls == "starttls"
        client.enable_plaintext = bool(settings.host) and settings.tls == "none"
        if settings.ca_file:
            client.ssl_context = ssl.create_default_context(cafile=settings.ca_file)
        for name in ("xep_0030", "xep_0045", "xep_0198", "xep_0199"):
            client.register_plugin(name)
        if client.enable_plaintext:
            client.plugin["feature_mechanisms"].unencrypted_plain = True
        client.roster.auto_subscribe = False
        for feature in stanzas.FEATURES:
            client.plugin["xep_0030"].add_feature(feature)
        # an acknowledgement says that all before it is on disk, not that it was read from the socket
        client.plugin["xep_0198"].send_ack = self._acknowledge
        client.register_handler(Callback("messages", MatchXPath("{jabber:client}message"), self._on_message))
        # not with `session_start`: what came before the stream is managed would be lost with a connection that breaks
        client.add_event_handler("stream_negotiated", self._on_session)
        client.add_event_handler("session_resumed", self._on_resumed)
        client.add_event_handler("connection_failed", self._on_failed)
        client.add_event_handler("reconnect_delay", self._on_round)
        client.add_event_handler("disconnected", self._on_disconnected)
        client.add_event_handler("failed_all_auth", lambda _: self._fail("wrong_password", "sign-in refused", True))
        client.add_event_handler("no_auth", lambda _: self._fail("wrong_password", "no way to sign in", True))
        client.add_event_handler("ssl_invalid_chain", lambda exc: self._fail("bad_certificate", str(exc), False))
        client.add_event_handler("stream_error", self._on_stream_error)
        return client

    @property
    def jid(self):
        """Our own address without a resource."""
        return self.client.boundjid.bare

    async def open(self):
        """Connect and sign in. Raises Refused; the text of one says what to do."""
        self._outcome = asyncio.get_running_loop().create_future()
        self._connect()
        try:
            await asyncio.wait_for(asyncio.shield(self._outcome), CONNECT_S)
        except TimeoutError:
            raise XmppRefused("not_connected", f"no session within {CONNECT_S:g} s") from None
        self._taking = asyncio.create_task(self._take_all(), name=f"xmpp {self.jid}")

    async def close(self):
        """Take in and acknowledge what has arrived, and end the connection; the server keeps the rest."""
        self._closing = True
        self.client.cancel_connection_attempt()
        if self._taking is not None and self._taking is not asyncio.current_task():
            self._arrived.put_nowait(None)
            await asyncio.wait((self._taking,), timeout=FAREWELL_S)
            self._taking.cancel()
            await asyncio.wait((self._taking,))
        if self.client.transport is not None:
            await self.client.disconnect(wait=FAREWELL_S)

    # -- what comes in -------------------------------------------------------------------------------------------

    def _on_message(self, stanza):
        self._open += 1
        self._arrived.put_nowait(stanza)
        if self._arrived.qsize() >= WAITING and self.client.transport is not None:
            if not self.is_held:
                logger.warning("[xmpp] %d messages wait: the server keeps what comes now", WAITING)
            self.is_held = True
            self.client.transport.pause_reading()

    def _read_on(self):
        self.is_held = False
        if self.client.transport is not None:
            self.client.transport.resume_reading()

    async def _take_all(self):
        try:
            while (stanza := await self._arrived.get()) is not None:
                await self._take(stanza)
                self._open -= 1
                if self.is_held and self._arrived.qsize() <= WAITING // 2:
                    self._read_on()
                if self._is_asked:
                    self._acknowledge()
            self._acknowledge()  # unasked: otherwise the server would give the last ones again
        except Exception as exc:  # noqa: BLE001 - it is not acknowledged, so the server keeps it
            logger.warning("[xmpp] a message could not be taken in: %r", exc)
            self._on_end(XmppRefused("not_stored", f"{type(exc).__name__}: {exc}"))

    def _acknowledge(self):
        self._is_asked = self._open > 0
        if not self._is_asked:
            managed = self.client.plugin["xep_0198"]
            type(managed).send_ack(managed)

    # -- the life of the stream ----------------------------------------------------------------------------------

    def _on_session(self, _):
        self._rounds, self._failure = 0, None
        self._on_begin()
        self._resolve_outcome(None)

    def _on_resumed(self, _):
        logger.info("[xmpp] the stream goes on")
        self._rounds, self._failure = 0, None

    def _on_failed(self, exc):
        self._failure = exc

    def _on_round(self, _):
        """All addresses have been tried in vain."""
        self._rounds += 1
        if not self._outcome.done() or self._rounds >= TRIES:
            self._fail("not_connected", f"no connection: {self._failure}", False)

    def _on_disconnected(self, reason):
        if self._closing or not self._outcome.done():
            return
        self._rounds += 1
        if self._rounds >= TRIES:
            self._fail("not_connected", f"the connection breaks each time before there is a session: {reason}", False)
            return
        pause = 2 ** (self._rounds - 2) if self._rounds > 1 else 0
        logger.info("[xmpp] the connection broke, again in %d s: %s", pause, reason)
        asyncio.get_running_loop().call_later(pause, self._connect)

    def _connect(self):
        if not self._closing:
            self.client.connect(self.settings.host or None, self.settings.port if self.settings.host else None)

    def _on_stream_error(self, error):
        condition = error["condition"]
        if condition in FINAL:
            self._fail(FINAL[condition], f"{condition} {error['text']}".strip(), True)

    def _fail(self, code, text, final):
        refused = XmppRefused(code, text, final=final)
        if not self._outcome.done():
            self._resolve_outcome(refused)
        elif not self._closing and self._outcome.exception() is None:
            self._on_end(refused)
        self._closing = True
        self.client.cancel_connection_attempt()

    def _resolve_outcome(self, refused):
        if not self._outcome.done():
            if refused is None:
                self._outcome.set_result(None)
            else:
                self._outcome.set_exception(refused)

    # -- what goes out -------------------------------------------------------------------------------------------

    async def ping(self):
        """Return once the server has taken in all that was sent before. Raises TimeoutError."""
        try:
            await self.client.plugin["xep_0199"].send_ping(self.client.boundjid.host, timeout=PING_S)
        except IqError as exc:
            logger.debug("[xmpp] the server answers pings with %s", exc.condition)
        except IqTimeout:
            raise TimeoutError(f"the server did not answer within {PING_S:g} s") from None

    async def about(self, jid):
        """Return the categories of identities and the features of somebody; none where nothing is told."""
        try:
            said = await self.client.plugin["xep_0030"].get_info(jid=jid, timeout=PING_S)
        except (IqError, IqTimeout) as exc:
            logger.debug("[xmpp] nothing is known of %s: %s", jid, exc)
            return set(), set()
        info = said["disco_info"]
        assert isinstance(info, DiscoInfo)
        return {identity[0] for identity in info["identities"]}, info["features"]
