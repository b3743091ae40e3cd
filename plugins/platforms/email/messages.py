"""Reading and writing of mails: sender, text, thread, attachments, reasons not to answer."""

import email
import email.policy
import hashlib
import mimetypes
import re
import uuid
from email.message import EmailMessage
from email.utils import format_datetime, getaddresses, localtime, parseaddr, parsedate_to_datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

MACHINES = re.compile(r"(mailer-daemon|postmaster|no-?reply|do-?not-?reply|bounces?)([+._-].*)?@", re.IGNORECASE)
BULK = ("bulk", "junk", "list", "auto_reply")
_ATTRIBUTION = re.compile(r"^(On\b.{5,200}\bwrote|Am\b.{5,200}\bschrieb.*|Le\b.{5,200}\ba écrit ?):$", re.DOTALL)
_ORIGINAL = re.compile(r"^-{2,}\s*(Original Message|Forwarded message)\s*-{2,}$", re.IGNORECASE)
_BLOCKS = re.compile(r"address|article|blockquote|div|d[lt]|h[1-6]|hr|li|ol|p|pre|section|table|tr|ul")
_UNSEEN = frozenset(("head", "script", "style", "title"))
_IDS = re.compile(r"<[^<>\s]+>")


class MailMessage(NamedTuple):
    """A received mail."""

    message: EmailMessage
    sender: str
    """Address in lower case."""
    name: str
    id: str
    """Its Message-ID, or an id of its content."""
    root: str
    """Id of the first mail of the thread."""
    references: list
    subject: str


def read(raw):
    """Return a mail; raises ValueError for a mail without a sender."""
    message = email.message_from_bytes(raw, policy=email.policy.default)
    name, address = parseaddr(_header(message, "From"))
    if "@" not in address:
        raise ValueError("the mail has no sender")
    ids = _IDS.findall(_header(message, "Message-ID"))
    own = ids[0] if ids else f"<{hashlib.sha256(raw).hexdigest()[:32]}@no-id.invalid>"
    references = _IDS.findall(_header(message, "References")) or _IDS.findall(_header(message, "In-Reply-To"))[:1]
    root = references[0] if references else own
    return MailMessage(message, address.lower(), name, own, root, references, _header(message, "Subject"))


def ignore_reason(mail, own_address):
    """Return the reason not to answer a mail, which avoids loops; "" if there is none."""
    message = mail.message
    if mail.sender == own_address.lower() or own_address.lower() in _header(message, "X-Loop").lower():
        return "it is from this address"
    if message.get_content_type() == "multipart/report":
        return "it is a delivery report"
    if _header(message, "Return-Path").strip() == "<>":
        return "it is a bounce"
    if _header(message, "Auto-Submitted", "no").partition(";")[0].strip().lower() != "no":
        return "it was sent automatically"
    if _header(message, "Precedence").strip().lower() in BULK:
        return "it is bulk mail"
    if any(name in message for name in ("List-Id", "List-Unsubscribe", "X-Autoreply", "X-Autorespond")):
        return "it is of a mailing list, or an automatic reply"
    if MACHINES.match(mail.sender):
        return "the address accepts no replies"
    return ""


def is_authenticated(mail, server):
    """Return whether the mail server `server` reports that DMARC passed."""
    for value in mail.message.get_all("Authentication-Results", []):
        verdict = re.sub(r"\([^()]*\)", "", str(value))
        if verdict.partition(";")[0].split()[:1] == [server]:
            return re.search(r";\s*dmarc\s*=\s*pass\b", verdict) is not None  # that of the server is the topmost
    return False


def failed_recipients(message):
    """Return the recipients that a bounce reports as failed."""
    report = "\n".join(str(part) for part in message.walk() if part.get_content_type() == "message/delivery-status")
    return re.findall(r"^Final-Recipient:[^;]*;\s*(\S+)", report, re.MULTILINE | re.IGNORECASE)


def text_of(message):
    """Return the text of a mail without quoted text below it and without the signature."""
    body = message.get_body(("plain", "html"))
    if body is None:
        return ""
    text = _content(body)
    return without_quote(html_to_text(text) if body.get_content_subtype() == "html" else text)


def without_quote(text):
    """Return a text without the quoted mail at its end; quotes in between stay."""
    lines = text.replace("\r\n", "\n").rstrip().split("\n")
    for at, line in enumerate(lines):
        if line == "-- " or (at and _ORIGINAL.match(line.strip())):
            lines = lines[:at]
            break
    end = len(lines)
    while end and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith(">")):
        end -= 1
    for size in (1, 2, 3):  # "On … wrote:" may be folded
        if end - size >= 0 and end < len(lines) and _ATTRIBUTION.match("\n".join(lines[end - size : end]).strip()):
            return "\n".join(lines[: end - size]).strip()
    return "\n".join(lines).strip() if end == 0 else "\n".join(lines[:end]).strip()


def attachments(message):
    """Yield name, MIME type and bytes of the attachments, including inline images."""
    body = message.get_body(("plain", "html"))
    for part in message.walk():
        if part.is_multipart() or part is body:
            continue
        name = part.get_filename() or ""
        if name or part.get_content_maintype() not in ("text", "multipart", "message"):
            yield name, part.get_content_type(), part.get_payload(decode=True) or b""


def written_at(message):
    """Return the date of a mail; None if it is missing or invalid."""
    try:
        return parsedate_to_datetime(_header(message, "Date"))
    except ValueError:
        return None


def write(sender, to, text, *, subject, key="", references=(), files=()):
    """Return a new mail. `key` determines its id: the same key is the same mail."""
    message = EmailMessage(policy=email.policy.SMTP)
    message["From"], message["To"] = sender, to
    message["Subject"] = " ".join(subject.split())
    message["Date"] = format_datetime(localtime())
    name = hashlib.sha256(key.encode()).hexdigest()[:32] if key else uuid.uuid4().hex
    message["Message-ID"] = f"<{name}@{sender.rpartition('@')[2]}>"
    if references:
        message["In-Reply-To"] = references[-1]
        message["References"] = " ".join([references[0], *references[1:][-20:]])
    message["Auto-Submitted"] = "auto-replied" if references else "auto-generated"
    message["X-Auto-Response-Suppress"] = "All"
    message["X-Loop"] = sender
    message.set_content(text, cte="quoted-printable")
    for file in map(Path, files):
        kind, _, subtype = (mimetypes.guess_type(file.name)[0] or "application/octet-stream").partition("/")
        message.add_attachment(file.read_bytes(), maintype=kind, subtype=subtype, filename=file.name)
    return message


def is_address(text):
    """Return whether a text is exactly one address."""
    found = getaddresses([text])
    return len(found) == 1 and found[0] == ("", text) and re.fullmatch(r"[^\s@,;<>]+@[^\s@,;<>]+", text) is not None


def html_to_text(html):
    """Return the text of an HTML document."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    text = re.sub(r"[ \t\xa0]+", " ", "".join(reader.parts))
    return re.sub(r"\n\s*\n\s*\n+", "\n\n", re.sub(r" ?\n ?", "\n", text)).strip()


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.parts, self._unseen, self._link, self._quotes = [], 0, None, 0

    def handle_starttag(self, tag, attrs):
        if tag in _UNSEEN:
            self._unseen += 1
        elif tag == "br" or _BLOCKS.fullmatch(tag):
            self.parts.append("\n- " if tag == "li" else "\n")
        if tag == "a":
            self._link = dict(attrs).get("href") or "", len(self.parts)  # links are not nested
        if tag == "blockquote":
            self._quotes += 1

    def handle_endtag(self, tag):
        if tag in _UNSEEN:
            self._unseen = max(0, self._unseen - 1)
        elif _BLOCKS.fullmatch(tag):
            self.parts.append("\n")
        if tag == "a" and self._link:
            (address, at), self._link = self._link, None
            if address.startswith(("http://", "https://")) and address not in "".join(self.parts[at:]):
                self.parts.append(f" ({address})")
        if tag == "blockquote":
            self._quotes = max(0, self._quotes - 1)

    def handle_data(self, data):
        if not self._unseen:
            text = re.sub(r"\s+", " ", data)
            self.parts.append(text if not self._quotes or not text.strip() else f"> {text.lstrip()}")


def _header(message, name, otherwise=""):
    try:
        return str(message.get(name, otherwise))
    except Exception:  # noqa: BLE001 - a header that cannot be parsed counts as missing
        return otherwise


def _content(part):
    try:
        return part.get_content()
    except (LookupError, UnicodeError):  # an unknown charset
        return (part.get_payload(decode=True) or b"").decode(errors="replace")
