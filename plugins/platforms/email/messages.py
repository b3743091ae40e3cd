"""What a mail says and who wrote it; how one of ours looks."""

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
    """A mail that came."""

    message: EmailMessage
    sender: str
    """Address, in lower case."""
    name: str
    id: str
    """Its Message-ID; one of its content where it has none."""
    root: str
    """The id of the thread's first mail."""
    references: list
    subject: str


def read(raw):
    """Return a mail; raises ValueError for one without a sender."""
    message = email.message_from_bytes(raw, policy=email.policy.default)
    name, address = parseaddr(_header(message, "From"))
    if "@" not in address:
        raise ValueError("it has no sender")
    ids = _IDS.findall(_header(message, "Message-ID"))
    own = ids[0] if ids else f"<{hashlib.sha256(raw).hexdigest()[:32]}@no-id.invalid>"
    references = _IDS.findall(_header(message, "References")) or _IDS.findall(_header(message, "In-Reply-To"))[:1]
    root = references[0] if references else own
    return MailMessage(message, address.lower(), name, own, root, references, _header(message, "Subject"))


def ignore_reason(letter, own_address):
    """Return why a mail is not to be answered: loops are made of these; empty when it may be."""
    message = letter.message
    if letter.sender == own_address.lower() or own_address.lower() in _header(message, "X-Loop").lower():
        return "it is our own"
    if message.get_content_type() == "multipart/report":
        return "it is a report about a mail of ours"
    if _header(message, "Return-Path").strip() == "<>":
        return "it is a bounce"
    if _header(message, "Auto-Submitted", "no").partition(";")[0].strip().lower() != "no":
        return "a machine sent it"
    if _header(message, "Precedence").strip().lower() in BULK:
        return "it is bulk mail"
    if any(name in message for name in ("List-Id", "List-Unsubscribe", "X-Autoreply", "X-Autorespond")):
        return "it is of a list, or an automatic reply"
    if MACHINES.match(letter.sender):
        return "nobody reads that address"
    return ""


def is_authenticated(letter, server):
    """Whether the mail server `server` says that the sender's domain stands behind a mail (DMARC)."""
    for value in letter.message.get_all("Authentication-Results", []):
        verdict = re.sub(r"\([^()]*\)", "", str(value))
        if verdict.partition(";")[0].split()[:1] == [server]:
            return re.search(r";\s*dmarc\s*=\s*pass\b", verdict) is not None  # the server's own is the topmost
    return False


def failed_recipients(message):
    """Return who did not get a mail of ours, as a bounce says."""
    said = "\n".join(str(part) for part in message.walk() if part.get_content_type() == "message/delivery-status")
    return re.findall(r"^Final-Recipient:[^;]*;\s*(\S+)", said, re.MULTILINE | re.IGNORECASE)


def text_of(message):
    """Return what somebody wrote, without what they quote below it and their signature."""
    body = message.get_body(("plain", "html"))
    if body is None:
        return ""
    text = _content(body)
    return without_quote(html_to_text(text) if body.get_content_subtype() == "html" else text)


def without_quote(text):
    """Return a text without the quoted mail at its end; what is quoted in between stays."""
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
    """Yield name, MIME type and bytes of what is attached, pictures in the text included."""
    body = message.get_body(("plain", "html"))
    for part in message.walk():
        if part.is_multipart() or part is body:
            continue
        name = part.get_filename() or ""
        if name or part.get_content_maintype() not in ("text", "multipart", "message"):
            yield name, part.get_content_type(), part.get_payload(decode=True) or b""


def written_at(message):
    """Return when it was written; None when nobody knows."""
    try:
        return parsedate_to_datetime(_header(message, "Date"))
    except ValueError:
        return None


def write(sender, to, text, *, subject, key="", references=(), files=()):
    """Return a mail of ours. `key` makes its id: the same one, the same mail."""
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
    """Whether a text is one address and nothing else."""
    found = getaddresses([text])
    return len(found) == 1 and found[0] == ("", text) and re.fullmatch(r"[^\s@,;<>]+@[^\s@,;<>]+", text) is not None


def html_to_text(html):
    """Return the text of an HTML page."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    text = re.sub(r"[ \t\xa0]+", " ", "".join(reader.said))
    return re.sub(r"\n\s*\n\s*\n+", "\n\n", re.sub(r" ?\n ?", "\n", text)).strip()


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.said, self._unseen, self._link, self._quotes = [], 0, None, 0

    def handle_starttag(self, tag, attrs):
        if tag in _UNSEEN:
            self._unseen += 1
        elif tag == "br" or _BLOCKS.fullmatch(tag):
            self.said.append("\n- " if tag == "li" else "\n")
        if tag == "a":
            self._link = dict(attrs).get("href") or "", len(self.said)  # one within another is no HTML
        if tag == "blockquote":
            self._quotes += 1

    def handle_endtag(self, tag):
        if tag in _UNSEEN:
            self._unseen = max(0, self._unseen - 1)
        elif _BLOCKS.fullmatch(tag):
            self.said.append("\n")
        if tag == "a" and self._link:
            (address, at), self._link = self._link, None
            if address.startswith(("http://", "https://")) and address not in "".join(self.said[at:]):
                self.said.append(f" ({address})")
        if tag == "blockquote":
            self._quotes = max(0, self._quotes - 1)

    def handle_data(self, data):
        if not self._unseen:
            text = re.sub(r"\s+", " ", data)
            self.said.append(text if not self._quotes or not text.strip() else f"> {text.lstrip()}")


def _header(message, name, otherwise=""):
    try:
        return str(message.get(name, otherwise))
    except Exception:  # noqa: BLE001 - a header that the standard library cannot parse is as good as none
        return otherwise


def _content(part):
    try:
        return part.get_content()
    except (LookupError, UnicodeError):  # a charset that nobody knows
        return (part.get_payload(decode=True) or b"").decode(errors="replace")
