"""Connection of one account: TLS, sign-in, resumed streams, and acknowledgements."""

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
"""Limit of the receive queue (it fills with a full disk, for example); above it, reading pauses."""
TRIES = 5
"""Failed connection rounds, with delays up to half a minute, before the gateway is notified."""
FINAL = {"conflict": "conflict", "host-unknown": "bad_address", "not-authorized": "wrong_password"}
"""Ends of a stream after which a new connection would fail, too."""


class XmppRefused(Exception):
    """Error: the server rejected the connection; a code and the reason. `final`: a retry would fail, too."""

    def __init__(self, code, text, *, final=False):
        super().__init__(text)
        self.code, self.final = code, final


class XmppStream:
    """Stream of one account.

    Args:
        take: `await take(stanza)` for each message, in order; a message is acknowledged when it returns.
        resource: of the address. A sign-in with the resource of a broken stream ends that stream and delivers its
            unacknowledged messages; otherwise the server delivers them after a time limit.
        begun: called at the start of a new stream, which rooms and contacts do not know.
        ended: `ended(exc)` when the connection is permanently lost.
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
        """Whether reading is paused."""
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
        # an acknowledgement means that all earlier messages are on disk, not that they were read from the socket
        client.plugin["xep_0198"].send_ack = self._acknowledge
        client.register_handler(Callback("messages", MatchXPath("{jabber:client}message"), self._on_message))
        # at the session's start, stream management is not enabled yet: a broken connection would lose messages
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
        """Bare address of the account."""
        return self.client.boundjid.bare

    async def open(self):
        """Connect and sign in. Raises XmppRefused with what to do."""
        self._outcome = asyncio.get_running_loop().create_future()
        self._connect()
        try:
            await asyncio.wait_for(asyncio.shield(self._outcome), CONNECT_S)
        except TimeoutError:
            raise XmppRefused("not_connected", f"no session within {CONNECT_S:g} s") from None
        self._taking = asyncio.create_task(self._take_all(), name=f"xmpp {self.jid}")

    async def close(self):
        """Receive and acknowledge the queued messages, and close the connection; the server keeps the others."""
        self._closing = True
        self.client.cancel_connection_attempt()
        if self._taking is not None and self._taking is not asyncio.current_task():
            self._arrived.put_nowait(None)
            await asyncio.wait((self._taking,), timeout=FAREWELL_S)
            self._taking.cancel()
            await asyncio.wait((self._taking,))
        if self.client.transport is not None:
            await self.client.disconnect(wait=FAREWELL_S)

    # -- incoming messages -------------------------------------------------------------------------------------------

    def _on_message(self, stanza):
        self._open += 1
        self._arrived.put_nowait(stanza)
        if self._arrived.qsize() >= WAITING and self.client.transport is not None:
            if not self.is_held:
                logger.warning("[xmpp] receive queue full (%d messages): reading paused", WAITING)
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
            self._acknowledge()  # without a request, so that the server does not repeat the last ones
        except Exception as exc:  # noqa: BLE001 - the server keeps unacknowledged messages
            logger.warning("[xmpp] message not stored: %r", exc)
            self._on_end(XmppRefused("not_stored", f"{type(exc).__name__}: {exc}"))

    def _acknowledge(self):
        self._is_asked = self._open > 0
        if not self._is_asked:
            managed = self.client.plugin["xep_0198"]
            type(managed).send_ack(managed)

    # -- life cycle of the stream ----------------------------------------------------------------------------------

    def _on_session(self, _):
        self._rounds, self._failure = 0, None
        self._on_begin()
        self._resolve_outcome(None)

    def _on_resumed(self, _):
        logger.info("[xmpp] stream resumed")
        self._rounds, self._failure = 0, None

    def _on_failed(self, exc):
        self._failure = exc

    def _on_round(self, _):
        """Handle a round in which all addresses failed."""
        self._rounds += 1
        if not self._outcome.done() or self._rounds >= TRIES:
            self._fail("not_connected", f"no connection: {self._failure}", False)

    def _on_disconnected(self, reason):
        if self._closing or not self._outcome.done():
            return
        self._rounds += 1
        if self._rounds >= TRIES:
            self._fail("not_connected", f"the connection fails before a session is established: {reason}", False)
            return
        pause = 2 ** (self._rounds - 2) if self._rounds > 1 else 0
        logger.info("[xmpp] connection lost, retry in %d s: %s", pause, reason)
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

    # -- outgoing messages -------------------------------------------------------------------------------------------

    async def ping(self):
        """Return when the server has received all earlier stanzas. Raises TimeoutError."""
        try:
            await self.client.plugin["xep_0199"].send_ping(self.client.boundjid.host, timeout=PING_S)
        except IqError as exc:
            logger.debug("[xmpp] the server answers pings with %s", exc.condition)
        except IqTimeout:
            raise TimeoutError(f"the server did not answer within {PING_S:g} s") from None

    async def about(self, jid):
        """Return the identity categories and features of an address; empty sets if it does not answer."""
        try:
            answer = await self.client.plugin["xep_0030"].get_info(jid=jid, timeout=PING_S)
        except (IqError, IqTimeout) as exc:
            logger.debug("[xmpp] no information about %s: %s", jid, exc)
            return set(), set()
        info = answer["disco_info"]
        assert isinstance(info, DiscoInfo)
        return {identity[0] for identity in info["identities"]}, info["features"]
