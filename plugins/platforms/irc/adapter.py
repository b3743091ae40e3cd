"""Adapter for an IRC server: a chat is a channel or a user."""

import asyncio
import logging
import re
import time
from datetime import datetime

from hermes_agent.adapters.base import BasePlatformAdapter
from hermes_agent.adapters.events import MessageEvent, SendResult
from hermes_agent.adapters.text import as_command, convert_table_to_bullets, strip_markdown, strip_mention
from hermes_agent.core.tasks import end_task

from .connection import IrcConnection, IrcRefused
from .lines import cut, fold, is_channel, strip_formatting

__all__ = ["IrcAdapter"]

logger = logging.getLogger(__name__)

NOT_JOINED = ("403", "405", "437", "471", "473", "474", "475", "477")
TYPING_S = 3.0


class IrcAdapter(BasePlatformAdapter):
    """Adapter for one server. A chat is a channel, or a nick in lower case."""

    MAX_MESSAGE_LENGTH = 8000  # limit of one send, which takes up to two minutes
    begins_sends = True  # lines that wait for the rate limit are not sent yet
    sends_lines = True
    typed_command_prefix = "!"  # clients intercept lines that begin with a slash

    def __init__(self, config, settings):
        super().__init__(config, "irc")
        self.settings = settings
        self._channels = {fold(word.split()[0]): word for word in settings.channel}  # "#room" or "#room key"
        self._joined = set()
        self._connection = self._reading = None
        self._typing_at = {}
        self._shortened = False

    # -- connection ------------------------------------------------------------------------------------------

    async def connect(self, *, is_reconnect=False):
        settings = self.settings
        identity = f"{settings.server}/{fold(settings.nickname)}"
        if not self._acquire_platform_lock("irc", identity, f"The nick {settings.nickname} at {settings.server}"):
            return False
        connection = IrcConnection(settings, self._take)
        try:
            await connection.open()
            if settings.identify_by == "account" and "account-tag" not in connection.capabilities:
                raise IrcRefused(
                    "no_accounts", "the server does not support account tags: set platforms.irc.identify_by to nick"
                )
        except (OSError, TimeoutError, IrcRefused) as exc:
            await connection.close()
            self._release_platform_lock()
            code = exc.code if isinstance(exc, IrcRefused) else "not_connected"
            text = f"{settings.server}: {exc or type(exc).__name__}"
            self._set_fatal_error(code, text, retryable=not isinstance(exc, IrcRefused))
            return False
        self._connection = connection
        self._introduce()
        self._reading = asyncio.create_task(self._read(connection), name=f"irc {settings.server}")
        self._mark_connected()
        return True

    async def log_in(self):
        """Register with the server and disconnect; return a notice if the server shortens the nick.

        Raises the error of the connection.
        """
        connection = IrcConnection(self.settings, self._take)
        try:
            await connection.open()
            nick, wanted = connection.wanted_nick, self.settings.nickname
            return "" if nick == wanted else f"The nick is {nick}: the server allows {len(nick)} characters."
        finally:
            await connection.close()

    async def disconnect(self):
        await self.cancel_background_tasks()
        reading, connection = self._reading, self._connection
        self._reading = self._connection = None
        if connection is not None:
            await connection.close("See you.")
        await end_task(reading)
        self._joined.clear()
        self._release_platform_lock()
        self._mark_disconnected()

    async def _read(self, connection):
        try:
            await connection.run(self._tick)
        except Exception as exc:  # noqa: BLE001 - any error ends the connection
            if connection is self._connection:  # otherwise `disconnect` closed it
                text = f"{self.settings.server}: {exc or type(exc).__name__}"
                self._set_fatal_error("connection_lost", text, retryable=True)
                await self._notify_fatal_error()

    def _introduce(self):
        password = self.settings.nickserv_password
        if password and not self._connection.mechanism:
            self._connection.command(f"PRIVMSG NickServ :IDENTIFY {self._connection.wanted_nick} {password}")
        if password and not self._has_nick:
            self._connection.command(f"PRIVMSG NickServ :GHOST {self._connection.wanted_nick} {password}")
        self._tick()

    def _tick(self):
        """Request the nick and the channels that are missing."""
        if not self._has_nick:
            self._connection.command(f"NICK {self._connection.wanted_nick}")
        for name, channel in self._channels.items():
            if name not in self._joined:
                self._connection.command(f"JOIN {channel}")

    @property
    def _has_nick(self):
        return fold(self._connection.nick) == fold(self._connection.wanted_nick)

    @property
    def _names(self):
        """Names of the agent: its nick, and the configured nick if the server shortened it."""
        whole = self.settings.nickname
        return [self._connection.nick] + ([whole] if self._connection.wanted_nick != whole else [])

    def _apply_nick_limit(self):
        nick, whole = self._connection.wanted_nick, self.settings.nickname
        if not self._has_nick:  # a longer nick than the guessed one may be allowed
            self._connection.command(f"NICK {nick}")
        if nick != whole and not self._shortened:
            logger.warning("[irc] nick shortened: %s allows %d characters: %s", self.settings.server, len(nick), nick)
        self._shortened = nick != whole

    # -- incoming messages -------------------------------------------------------------------------------------------

    async def _take(self, line):
        if self._connection is None:
            return
        mine = fold(line.nick) == fold(self._connection.nick)
        if line.command == "PRIVMSG":
            await self._message(line)
        elif line.command == "JOIN" and mine:
            self._joined.add(fold(line.param(0)))
        elif (line.command == "PART" and mine) or line.command == "KICK":
            target = self._connection.nick if mine else line.param(1)
            if fold(target) == fold(self._connection.nick):
                logger.warning("[irc] removed from %s by %s: %s", line.param(0), line.nick, line.param(-1))
                self._joined.discard(fold(line.param(0)))
        elif line.command == "005" and "NICKLEN=" in " ".join(line.params):
            self._apply_nick_limit()
        elif line.command in NOT_JOINED and fold(line.param(1)) in self._channels:
            logger.warning("[irc] cannot join %s, retry later: %s", line.param(1), line.param(-1))
        elif not self._has_nick and self._nick_may_be_free(line):
            self._connection.command(f"NICK {self._connection.wanted_nick}")

    def _nick_may_be_free(self, line):
        is_free = line.command in ("QUIT", "NICK") and fold(line.nick) == fold(self._connection.wanted_nick)
        return is_free or (line.command == "NOTICE" and fold(line.nick) == "nickserv")

    async def _message(self, line):
        target, text = line.param(0), line.param(-1)
        if text.startswith("\x01"):
            text = self._unwrap_ctcp(line, text.strip("\x01"))
        text = strip_formatting(text).strip()
        in_channel = is_channel(target.lstrip("@%+~&") if target[1:2] == "#" else target)
        if in_channel:
            text = self._addressed_text(fold(target), text)
        if not text or "!" not in line.source:  # messages of servers have no "!"
            return
        chat = fold(target if in_channel else line.nick)
        source = self.build_source(
            chat_id=chat,
            chat_name=target if in_channel else line.nick,
            chat_type="group" if in_channel else "dm",
            user_id=self._user_id(line),
            user_name=line.nick,
            is_bot="bot" in line.tags,
        )
        event = MessageEvent(as_command(text), source=source, raw_message=line, message_id=line.tags.get("msgid"))
        event.reply_to_message_id = line.tags.get("+reply") or line.tags.get("+draft/reply")
        if "time" in line.tags:
            event.timestamp = datetime.fromisoformat(line.tags["time"])
        await self.handle_message(event)

    def _user_id(self, line):
        """Return the user id: the nick, or the account, which cannot be taken by others."""
        if self.settings.identify_by != "account":
            return fold(line.nick)
        return line.tags.get("account") or f"~{fold(line.nick)}"  # no account name begins with `

    def _addressed_text(self, channel, text):
        """Return the text of a line for the agent; "" if it is not meant for the agent."""
        rest, named = strip_mention(text, self._names)
        free = channel in map(fold, self.settings.free_response_channels) or not self.settings.require_mention
        return rest if free or named else ""

    def _unwrap_ctcp(self, line, request):
        """Return the text of an ACTION; answer queries of clients."""
        kind, _, rest = request.partition(" ")
        if kind.upper() == "ACTION":
            return f"* {line.nick} {rest}"
        answers = {"PING": rest, "VERSION": "hermes-agent", "TIME": time.strftime("%Y-%m-%d %H:%M:%S %z")}
        answer = answers.get(kind.upper())
        if answer is not None and self._connection.has_allowance:
            self._connection.command(f"NOTICE {line.nick} :\x01{kind.upper()} {answer}\x01")
        return ""

    # -- outgoing messages -------------------------------------------------------------------------------------------

    def format_message(self, content):
        return strip_markdown(convert_table_to_bullets(content))

    async def send(self, chat_id, content, reply_to=None, metadata=None):
        connection = self._connection
        if connection is None:
            return SendResult(False, error="not connected", retryable=True, error_kind="transient")
        if not chat_id or re.search(r"[\s,:]", chat_id):
            return SendResult(False, error=f"{chat_id!r} is neither a channel nor a nick", error_kind="not_found")
        texts = cut(self.format_message(content), connection.room(chat_id))
        if not texts:
            return SendResult(True)
        tags = f"@+draft/reply={reply_to} " if reply_to and "message-tags" in connection.capabilities else ""
        try:
            delivery = await connection.deliver(chat_id, texts, tags, (metadata or {}).get("begin_send"))
        except TimeoutError as exc:
            return SendResult(False, error=f"timed out, it may have arrived: {exc}", error_kind="unknown")
        except ConnectionError as exc:
            return SendResult(False, error=str(exc), retryable=True, error_kind="transient")
        if delivery.refused:
            if delivery.refused < len(texts):
                part = f"{delivery.refused} of {len(texts)} lines were rejected"
                text = f"{chat_id}: it may have arrived in part, {part}: {delivery.error}"
                return SendResult(False, error=text, error_kind="unknown")
            text, kind = f"{chat_id}: {delivery.error}", delivery.kind
            return SendResult(False, error=text, error_kind=kind, retryable=kind in ("transient", "rate_limited"))
        ids = delivery.ids or [None]
        return SendResult(True, message_id=ids[0], continuation_message_ids=tuple(ids[1:]))

    async def send_typing(self, chat_id, metadata=None):
        connection, now = self._connection, time.monotonic()
        if connection is None or "message-tags" not in connection.capabilities or not connection.has_allowance:
            return
        if now - self._typing_at.get(chat_id, 0.0) >= TYPING_S:
            self._typing_at[chat_id] = now
            connection.command(f"@+typing=active TAGMSG {chat_id}")

    async def stop_typing(self, chat_id):
        if self._typing_at.pop(chat_id, None) is not None and self._connection is not None:
            self._connection.command(f"@+typing=done TAGMSG {chat_id}")

    async def get_chat_info(self, chat_id):
        return {"name": chat_id, "type": "group" if is_channel(chat_id) else "dm"}
