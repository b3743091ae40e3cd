"""Adapter for a mailbox: a chat is an email address, a thread is a thread of mails."""

import asyncio
import logging
from datetime import datetime
from pathlib import Path

from hermes_agent.adapters.adapter_state import adapter_file
from hermes_agent.adapters.base import BasePlatformAdapter
from hermes_agent.adapters.events import MessageEvent, MessageType, SendResult
from hermes_agent.adapters.media import cache_media_bytes
from hermes_agent.adapters.media_references import local_path
from hermes_agent.core.tasks import end_task
from hermes_agent.core.text import shorten

from . import messages
from .imap import Imap, ImapRejected
from .smtp import send_mail, try_login

logger = logging.getLogger(__name__)

IDLE_S = 540.0
"""Servers close an idle connection after half an hour, routers after ten minutes."""
LARGEST = 25 * 1024 * 1024
"""Only the beginning of a larger mail is read."""
BEGINNING = 256 * 1024
THREADS_KEPT = 500
KINDS = {"image": MessageType.PHOTO, "video": MessageType.VIDEO, "audio": MessageType.AUDIO}


class EmailAdapter(BasePlatformAdapter):
    """Adapter that reads one folder; the UID of the last received mail is stored in the home."""

    MAX_MESSAGE_LENGTH = 500_000
    sends_any_file = True

    def __init__(self, config, settings):
        super().__init__(config, "email")
        settings.imap_security = settings.imap_security or ("starttls" if settings.imap_port == 143 else "tls")
        settings.smtp_security = settings.smtp_security or ("tls" if settings.smtp_port == 465 else "starttls")
        self.settings = settings
        self._state = adapter_file("email", settings.address.lower())
        self._imap = self._watching = None

    # -- connection ------------------------------------------------------------------------------------------

    async def connect(self, *, is_reconnect=False):
        settings = self.settings
        if not self._acquire_platform_lock("email", settings.address.lower(), f"The mailbox {settings.address}"):
            return False
        try:
            self._imap = await self._open_imap()
            validity, following = await self._imap.select(settings.folder)
        except (OSError, TimeoutError, ImapRejected, ValueError) as exc:
            self._release_platform_lock()
            refused = isinstance(exc, (ImapRejected, ValueError))
            text = f"{settings.imap_host}: {exc or type(exc).__name__}"
            self._set_fatal_error("imap_refused" if refused else "not_connected", text, retryable=not refused)
            return False
        await self._begin(validity, following, is_reconnect)
        self._watching = asyncio.create_task(self._watch(self._imap), name=f"email {settings.address}")
        self._mark_connected()
        return True

    async def _open_imap(self):
        settings = self.settings
        user = settings.user or settings.address
        return await Imap.open(settings.imap_host, settings.imap_port, settings.imap_security, user, settings.password)

    async def log_in(self):
        """Log in to both servers and log out again; raise the error with the name of the server."""
        server = self.settings.imap_host
        try:
            imap = await self._open_imap()
            imap.close()
            server = self.settings.smtp_host
            await asyncio.to_thread(try_login, self.settings)
        except Exception as exc:
            raise ConnectionError(f"{server}: {exc or type(exc).__name__}") from exc

    async def disconnect(self):
        await self.cancel_background_tasks()
        watching, imap = self._watching, self._imap
        self._watching = self._imap = None
        await end_task(watching)
        if imap is not None:
            imap.close()
        self._release_platform_lock()
        self._mark_disconnected()

    async def _begin(self, validity, following, is_reconnect):
        """Store the start position: after the mails that were there at the first connection."""
        known = self._state.read()
        resume = self.settings.resume_after_downtime or is_reconnect
        if known.get("validity") == validity and resume and "uid" in known:
            return
        if known.get("validity") not in (None, validity):
            logger.warning("[email] the server renumbered the folder: mails that are in it now are not read")
        newest = following - 1 if following else max(await self._imap.uids_above(0), default=0)
        self._save_state(validity=validity, uid=newest)

    async def _watch(self, imap):
        try:
            while True:
                await self._take_new(imap)
                if "IDLE" in imap.capabilities:
                    await imap.idle(IDLE_S)
                else:
                    await asyncio.sleep(self.settings.poll_interval)
                    await imap.command("NOOP")
        except Exception as exc:  # noqa: BLE001 - the gateway reconnects, and the stored UID continues
            if imap is self._imap:  # otherwise `disconnect` closed it
                text = f"{self.settings.imap_host}: {exc or type(exc).__name__}"
                self._set_fatal_error("connection_lost", text, retryable=True)
                await self._notify_fatal_error()

    # -- incoming messages -------------------------------------------------------------------------------------------

    async def _take_new(self, imap):
        for uid in await imap.uids_above(self._state.read().get("uid", 0)):
            raw, size = await imap.fetch(uid, LARGEST, BEGINNING)
            event = self._event(raw, size) if raw is not None else None
            if event is not None:
                await self.handle_message(event)
            self._save_state(uid=uid)  # stored after receipt: a duplicate is recognized by its id
            if event is not None:
                await imap.mark_seen(uid)

    def _event(self, raw, size):
        """Return the message of a mail; None if it must not be answered."""
        try:
            mail = messages.read(raw)
            reason = messages.ignore_reason(mail, self.settings.address) or self._authentication_failure(mail)
            if reason:
                failed = messages.failed_recipients(mail.message)
                level = logging.WARNING if failed else logging.INFO
                undelivered = f"; not delivered to {', '.join(failed)}" if failed else ""
                logger.log(level, "[email] mail of %s not answered: %s%s", mail.sender, reason, undelivered)
                return None
            return self._read(mail, size)
        except Exception as exc:  # noqa: BLE001 - an invalid mail must not block later ones
            logger.warning("[email] mail skipped: %s: %s", type(exc).__name__, exc)
            return None

    def _authentication_failure(self, mail):
        server = self.settings.require_authentication
        proven = not server or messages.is_authenticated(mail, server)
        return "" if proven else f"{server} did not authenticate the sender (no dmarc=pass)"

    def _read(self, mail, size):
        text = messages.text_of(mail.message)
        is_first = not mail.references
        if mail.subject and is_first and not text.startswith("/"):
            text = f"[Subject: {mail.subject}]\n\n{text}"
        if size > LARGEST:
            text += f"\n\n[The mail has {size // 2**20} MB; its attachments were not read.]"
        source = self.build_source(
            chat_id=mail.sender,
            chat_name=mail.name or mail.sender,
            user_id=mail.sender,
            user_name=mail.name or mail.sender,
            thread_id=mail.root,
            chat_topic=mail.subject,
        )
        event = MessageEvent(text, source=source, message_id=mail.id, raw_message=mail.message)
        event.timestamp = messages.written_at(mail.message) or datetime.now()
        event.reply_to_message_id = mail.references[-1] if mail.references else None
        for name, mime, data in messages.attachments(mail.message) if not self.settings.skip_attachments else ():
            cached = cache_media_bytes(data, filename=name, mime_type=mime) if size <= LARGEST else None
            if cached is not None:
                event.attach(cached.path, cached.media_type, KINDS.get(cached.kind, MessageType.DOCUMENT))
        self._save_thread(mail.root, mail.subject, [*mail.references, mail.id])
        return event

    # -- outgoing messages -------------------------------------------------------------------------------------------

    async def send(self, chat_id, content, reply_to=None, metadata=None):
        return await self.mail(chat_id, content, (), metadata, reply_to)

    async def mail(self, chat_id, content, files=(), metadata=None, reply_to=None):
        """Send one mail in the thread of `metadata`, or in a new one."""
        if not messages.is_address(chat_id):
            return SendResult(False, error=f"{chat_id!r} is no email address", error_kind="not_found")
        metadata = metadata or {}
        root = metadata.get("thread_id") or ""
        thread = self._state.read().get("threads", {}).get(root) or {}
        references = thread.get("references") or ([root] if root else [])
        if reply_to in references:
            references = references[: references.index(reply_to) + 1]
        subject = thread.get("subject") or metadata.get("subject") or first_line(content)
        if references and not subject.lower().startswith("re:"):
            subject = f"Re: {subject}"
        key = f"{metadata['delivery_key']}" if metadata.get("delivery_key") else ""
        try:
            message = messages.write(
                self.settings.address, chat_id, content, subject=subject, key=key, references=references, files=files
            )
        except OSError as exc:
            return SendResult(False, error=f"cannot read a file: {exc.strerror}", error_kind="unknown")
        result = await asyncio.to_thread(send_mail, self.settings, message)  # smtplib blocks
        if result.success:
            own = message["Message-ID"]
            self._save_thread(root or own, thread.get("subject") or subject, [*references, own])
        return result

    async def send_document(self, chat_id, file_path, caption=None, file_name=None, reply_to=None, metadata=None, **_):
        return await self.mail(chat_id, caption or file_name or Path(file_path).name, [file_path], metadata, reply_to)

    async def send_multiple_images(self, chat_id, images, metadata=None, human_delay=0.0):
        """Send all images in one mail: local files as attachments, others as addresses."""
        files = [path for url, _ in images if (path := local_path(url))]
        lines = [f"{alt}: {url}" if alt else url for url, alt in images if not local_path(url)]
        lines += [alt for url, alt in images if alt and local_path(url)]
        return await self.mail(chat_id, "\n".join(lines) or "Pictures", files, metadata)

    async def get_chat_info(self, chat_id):
        return {"name": chat_id, "type": "dm"}

    # -- stored state --------------------------------------------------------------------------------------------

    def _save_state(self, **values):
        with self._state.change() as state:
            state.update(values)

    def _save_thread(self, root, subject, references):
        with self._state.change() as state:
            threads = state.setdefault("threads", {})
            threads[root] = {"subject": subject, "references": [references[0], *references[1:][-20:]]}
            while len(threads) > THREADS_KEPT:
                del threads[next(iter(threads))]


def first_line(text):
    """Return the subject of a mail that starts a thread."""
    line = next((line.strip("#*_ ") for line in text.splitlines() if line.strip("#*_ ")), "Hermes")
    return shorten(line, 70)
