"""Adapter for Slack: socket mode delivers events, API calls go out."""

import asyncio
import logging
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from hermes_agent.adapters.adapter_state import MessageDeduplicator
from hermes_agent.adapters.base import BasePlatformAdapter
from hermes_agent.adapters.events import MessageEvent, MessageType, ProcessingOutcome, SendResult
from hermes_agent.adapters.media import cache_media_bytes
from hermes_agent.adapters.questions import (
    CHOICE,
    answer_text,
    approval_buttons,
    approval_text,
    callbacks_for,
    confirmation_buttons,
    may_answer,
)

from .events import as_event, is_message, mentioned_ids

logger = logging.getLogger(__name__)

CONNECT_S = 30
PING_S = 10.0
LARGEST_FILE = 100 * 2**20
KINDS = {"image": MessageType.PHOTO, "video": MessageType.VIDEO, "audio": MessageType.AUDIO}
BUTTON_PREFIX = "hermes_"
"""Prefix of the ids of the adapter's buttons."""
BAD_TOKENS = (
    "invalid_auth",
    "not_authed",
    "account_inactive",
    "token_revoked",
    "token_expired",
    "not_allowed_token_type",
)
FAILURES = {
    "not_found": ("channel_not_found", "is_archived", "user_not_found", "message_not_found", "thread_not_found"),
    "forbidden": ("not_in_channel", "restricted_action", "no_permission", "missing_scope", "cant_update_message"),
    "too_long": ("msg_too_long", "msg_blocks_too_long"),
}


class SlackAdapter(BasePlatformAdapter):
    """Adapter for a Slack app. A chat is a channel; threads are Slack's."""

    MAX_MESSAGE_LENGTH = 12_000
    sends_any_file = True
    supports_code_blocks = True
    supports_status_text = True
    typed_command_prefix = "!"  # Slack intercepts lines that begin with a slash, and allows none in threads

    def __init__(self, config, settings):
        super().__init__(config, "slack")
        self.settings = settings
        self._web = self._socket = None
        self._me, self._names = "", {}
        self._seen = MessageDeduplicator()
        self._order = None
        self._shows_status = True

    # -- connection ------------------------------------------------------------------------------------------

    def open(self):
        """Create the client, so that API calls work."""
        base = f"{self.settings.base_url.rstrip('/')}/"
        # the SDK's retries would repeat a message that may have arrived
        self._web = AsyncWebClient(self.settings.token, base_url=base, retry_handlers=[], timeout=60)

    async def log_in(self):
        """Check both tokens; raise the error."""
        self.open()
        await self._web.auth_test()
        await self._web.apps_connections_open(app_token=self.settings.app_token)

    async def connect(self, *, is_reconnect=False):
        if not self._acquire_platform_lock("slack-app-token", self.settings.app_token, "This Slack app"):
            return False
        self.open()
        self._order = asyncio.Lock()
        try:
            self._me = (await self._web.auth_test())["user_id"]
            self._socket = SocketModeClient(self.settings.app_token, web_client=self._web, ping_interval=PING_S)
            self._socket.socket_mode_request_listeners.append(self._take)
            self._socket.wss_uri = await self._socket.issue_new_wss_url()
            await asyncio.wait_for(self._socket.connect(), CONNECT_S)
        except (SlackClientError, aiohttp.ClientError, OSError, TimeoutError) as exc:
            await self.disconnect()
            error = _error(exc) if isinstance(exc, SlackApiError) else f"{type(exc).__name__}: {exc}"
            bad = error in BAD_TOKENS
            self._set_fatal_error("bad_token" if bad else "not_connected", f"Slack: {error}", retryable=not bad)
            return False
        self._mark_connected()
        return True

    async def disconnect(self):
        await self.cancel_background_tasks()
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()
        self._release_platform_lock()
        self._mark_disconnected()

    # -- incoming messages -------------------------------------------------------------------------------------------

    async def _take(self, socket, request):
        """Receive deliveries in order, then confirm them; Slack repeats unconfirmed ones."""
        async with self._order:
            kind, payload = request.type, request.payload
            try:
                event = await self._event(kind, payload)
                if event is not None:
                    await self.handle_message(event)
            except (KeyError, TypeError, ValueError) as exc:  # an invalid delivery must not be repeated
                logger.warning("[slack] delivery (%s) skipped: %r", kind, exc)
            except BaseException:
                self._seen.discard(_identity(payload))
                raise
        await socket.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id))

    async def _event(self, kind, payload):
        if kind == "slash_commands":
            return self._command(payload)
        if kind == "interactive":
            return await self._pressed(payload) if payload.get("type") == "block_actions" else None
        event = payload.get("event") or {}
        if kind != "events_api" or not is_message(event, self._me) or self._seen.is_duplicate(_identity(payload)):
            return None
        for user in (*mentioned_ids(str(event.get("text") or "")), event.get("user")):
            await self._name(user)
        own_thread = self.settings.reply_in_thread
        name = self._names.get(event.get("user")) or event.get("username")
        message = as_event(event, self._me, name, self._names, self.build_source, own_thread=own_thread)
        for file in event.get("files") or ():
            await self._fetch(file, message)
        return message if message.text or message.media_urls else None

    async def _name(self, user):
        """Look up the name of a user, once."""
        if user and user not in self._names:
            try:
                about = (await self._web.users_info(user=user))["user"]
                profile = about.get("profile") or {}
                self._names[user] = profile.get("display_name") or profile.get("real_name") or about.get("name") or user
            except (SlackClientError, aiohttp.ClientError, TimeoutError) as exc:
                logger.info("[slack] no information about %s: %s", user, exc)
                self._names[user] = user

    async def _fetch(self, file, message):
        name, mime = file.get("name") or "file", file.get("mimetype") or ""
        try:
            cached = cache_media_bytes(await self._download(file), filename=name, mime_type=mime)
        except (aiohttp.ClientError, TimeoutError, ValueError) as exc:
            message.text = f"{message.text}\n[The file {name} could not be fetched: {exc}]".strip()
            return
        if cached is not None:
            voice = file.get("subtype") == "slack_audio"
            kind = MessageType.VOICE if voice else KINDS.get(cached.kind, MessageType.DOCUMENT)
            message.attach(cached.path, cached.media_type, kind)

    async def _download(self, file):
        address = file.get("url_private_download") or file.get("url_private") or ""
        host, own = urlsplit(address).hostname or "", urlsplit(self.settings.base_url).hostname
        if host != own and host != "slack.com" and not host.endswith(".slack.com"):
            raise ValueError(f"its host is {host or 'unknown'}, not Slack")  # the token must not be sent there
        if int(file.get("size") or 0) > LARGEST_FILE:
            raise ValueError("it is larger than 100 MB")
        headers = {"authorization": f"Bearer {self.settings.token}"}
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session,
            session.get(address, headers=headers, allow_redirects=False) as answer,
        ):
            if answer.status != 200 or answer.content_type == "text/html":  # the login page
                raise ValueError(f"Slack answered {answer.status}: has the app the scope files:read?")
            return await answer.read()

    def _command(self, payload):
        """Return the message of a slash command; `/hermes` alone is no command."""
        command, rest = payload["command"], payload.get("text") or ""
        text = rest if command == "/hermes" else f"{command} {rest}".strip()
        event = self._make_event(payload["channel_id"], payload["user_id"], payload.get("user_name"), text)
        event.message_id = f"command-{payload['trigger_id']}"
        return event if text else None

    async def _pressed(self, payload):
        """Return the text of one of the adapter's buttons; pass other buttons to plugins."""
        action = payload["actions"][0]
        if not action["action_id"].startswith(BUTTON_PREFIX):
            await self._for_plugins(payload, action)
            return None
        channel, message, user = payload["channel"]["id"], payload["message"], payload["user"]
        value = action["value"]
        if not may_answer(self, value, user["id"], "dm" if channel.startswith("D") else "group", channel):
            logger.info("[slack] button in %s ignored: user %s has no access", channel, user["id"])
            return None
        shown = f"{message.get('text', '')}\n\n<@{user['id']}>: {action['text']['text']}"
        await self._quietly(self._web.chat_update, channel=channel, ts=message["ts"], text=shown, blocks=[])
        text = answer_text(value, value.removeprefix(CHOICE))
        event = self._make_event(channel, user["id"], user.get("name"), text, message.get("thread_ts"))
        event.message_id = f"button-{action['action_ts']}"
        return event

    async def _for_plugins(self, payload, action):
        async def ack(*args, **kwargs):
            """Do nothing: the delivery is always confirmed later."""

        for callback in callbacks_for(action):
            try:
                await callback(ack, payload, action)
            except Exception as exc:  # noqa: BLE001 - plugin code: other handlers must still run
                logger.warning("[slack] the handler of %s failed: %r", action["action_id"], exc)

    def _make_event(self, channel, user, name, text, thread=None):
        direct = channel.startswith("D")
        source = self.build_source(
            chat_id=channel, chat_type="dm" if direct else "group", user_id=user, user_name=name, thread_id=thread
        )
        event = MessageEvent(text, source=source)
        event.metadata["addressed"] = True
        return event

    async def on_processing_start(self, event):
        await self._react(event, "eyes")

    async def on_processing_complete(self, event, outcome):
        await self._react(event, "eyes", add=False)
        name = {ProcessingOutcome.SUCCESS: "white_check_mark", ProcessingOutcome.FAILURE: "x"}.get(outcome)
        if name:
            await self._react(event, name)

    async def _react(self, event, name, *, add=True):
        if self.settings.reactions and (event.message_id or "").replace(".", "").isdigit():
            call = self._web.reactions_add if add else self._web.reactions_remove
            await self._quietly(call, channel=event.source.chat_id, timestamp=event.message_id, name=name)

    # -- outgoing messages -------------------------------------------------------------------------------------------

    async def send(self, chat_id, content, reply_to=None, metadata=None):
        return await self._post(chat_id, metadata, markdown_text=content)

    async def edit_message(self, chat_id, message_id, content, *, finalize=False):
        return await self._call("chat_update", channel=chat_id, ts=message_id, markdown_text=content)

    async def delete_message(self, chat_id, message_id):
        return (await self._call("chat_delete", channel=chat_id, ts=message_id)).success

    async def send_typing(self, chat_id, metadata=None):
        thread = (metadata or {}).get("thread_id")
        if thread and self._shows_status and self._web is not None:
            status = self.config.typing_status_text or "is thinking…"
            call = self._web.assistant_threads_setStatus
            self._shows_status = await self._quietly(call, channel_id=chat_id, thread_ts=thread, status=status)

    async def send_image(self, chat_id, image_url, caption=None, reply_to=None, metadata=None):
        block = {"type": "image", "image_url": image_url, "alt_text": (caption or "picture")[:2000]}
        result = await self._post(chat_id, metadata, text=caption or image_url, blocks=[block])
        if result.success or result.error_kind != "bad_format":
            return result
        return await super().send_image(chat_id, image_url, caption, reply_to, metadata)  # Slack could not fetch it

    async def send_document(self, chat_id, file_path, caption=None, file_name=None, reply_to=None, metadata=None, **_):
        path = Path(file_path)
        thread = (metadata or {}).get("thread_id")
        try:
            data = path.read_bytes()  # noqa: ASYNC240 - local files of the agent
        except OSError as exc:
            return SendResult(False, error=f"cannot read the file: {exc.strerror}", error_kind="unknown")
        name = file_name or path.name
        about = {"file": data, "filename": name, "title": name, "initial_comment": caption, "thread_ts": thread}
        return await self._call("files_upload_v2", channel=chat_id, **about)

    async def send_exec_approval(
        self, chat_id, command, session_key, description="", metadata=None, allow_permanent=True, approval_id="", **more
    ):
        """Ask with buttons, which stand for commands."""
        text = approval_text(command, description, limit=2500)
        session = more.get("allow_session", True)
        offered = approval_buttons(permanent=allow_permanent, approval_id=approval_id, session=session)
        return await self._asked(chat_id, text, {value: label for value, (_, label) in offered.items()}, metadata)

    async def send_clarify(self, chat_id, question, choices, clarify_id, session_key, metadata=None):
        """Ask with buttons, which stand for their texts."""
        offered = {f"{CHOICE}{choice}": str(choice) for choice in choices or ()}
        if not offered or len(offered) > 25 or any(len(value) > 2000 for value in offered):
            return await super().send_clarify(chat_id, question, choices, clarify_id, session_key, metadata)
        return await self._asked(chat_id, f"❓ {question[:2900]}", offered, metadata)

    async def send_slash_confirm(self, chat_id, title, message, session_key, confirm_id, metadata=None):
        return await self._asked(chat_id, f"❓ *{title}*\n{message}", confirmation_buttons(confirm_id), metadata)

    async def _asked(self, chat_id, text, offered, metadata):
        buttons = [
            {
                "type": "button",
                "action_id": f"{BUTTON_PREFIX}{number}",
                "value": value,
                "text": {"type": "plain_text", "text": label[:75]},
            }
            for number, (value, label) in enumerate(offered.items())
        ]
        section = {"type": "section", "text": {"type": "mrkdwn", "text": text}}
        blocks = [section, {"type": "actions", "elements": buttons}]
        return await self._post(chat_id, metadata, text=text, blocks=blocks)

    async def send_private_notice(self, chat_id, user_id, content, reply_to=None, metadata=None):
        if not user_id:
            return await self.send(chat_id, content, reply_to, metadata)
        thread = (metadata or {}).get("thread_id")
        about = {"channel": chat_id, "user": user_id, "thread_ts": thread, "markdown_text": content}
        return await self._call("chat_postEphemeral", **about)

    async def create_handoff_thread(self, parent_chat_id, name):
        return (await self.send(parent_chat_id, name)).message_id

    async def get_chat_info(self, chat_id):
        try:
            chat = (await self._web.conversations_info(channel=chat_id))["channel"]
        except (SlackClientError, aiohttp.ClientError, TimeoutError) as exc:
            logger.info("[slack] no information about %s: %s", chat_id, exc)
            return {"name": chat_id, "type": "dm" if chat_id.startswith("D") else "group"}
        return {"name": chat.get("name") or chat_id, "type": "dm" if chat.get("is_im") else "group"}

    async def _post(self, chat_id, metadata, **content):
        thread = (metadata or {}).get("thread_id")
        return await self._call("chat_postMessage", channel=chat_id, thread_ts=thread, unfurl_links=False, **content)

    async def _call(self, method, **params):
        if self._web is None:
            return SendResult(False, error="not connected", retryable=True, error_kind="transient")
        try:
            sent = await getattr(self._web, method)(**params)
        except SlackApiError as exc:
            return _failed(exc)
        except aiohttp.ClientConnectorError as exc:
            return SendResult(False, error=f"no connection: {exc}", retryable=True, error_kind="transient")
        except (SlackClientError, aiohttp.ClientError, TimeoutError) as exc:
            logger.warning("[slack] %s: the message may have arrived: %r", method, exc)
            return SendResult(False, error="timed out: it may have arrived", error_kind="unknown")
        return SendResult(True, message_id=sent.get("ts") or sent.get("message_ts"))

    async def _quietly(self, call, **params):
        """Make a call that is not part of the answer; return whether it worked."""
        try:
            await call(**params)
        except (SlackClientError, aiohttp.ClientError, TimeoutError) as exc:
            logger.debug("[slack] %s", exc)
            return False
        return True


def _identity(payload):
    event = payload.get("event") or {}
    return f"{event.get('channel')}:{event.get('ts')}"  # a mention is delivered twice, as a message and as a mention


def _error(exc):
    """Return the error code of Slack, or the HTTP status of another answer."""
    data = exc.response.data
    return str(data["error"]) if isinstance(data, dict) and "error" in data else str(exc.response.status_code)


def _failed(exc):
    error = _error(exc)
    if error == "ratelimited" or exc.response.status_code == 429:
        pause = float(exc.response.headers.get("Retry-After", 1))
        return SendResult(False, error="429 ratelimited", error_kind="rate_limited", retry_after=pause)
    if exc.response.status_code >= 500:
        return SendResult(False, error="timed out: it may have arrived", error_kind="unknown")
    kind = next((kind for kind, errors in FAILURES.items() if error in errors), "unknown")
    kind = "bad_format" if error.startswith("invalid_blocks") else kind
    return SendResult(False, error=error, error_kind=kind, retryable=error in BAD_TOKENS)
