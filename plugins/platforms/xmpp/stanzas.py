"""Reading and writing of message stanzas. Sources: the XEPs named after each namespace."""

import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime

CLIENT = "jabber:client"
CORRECT = "urn:xmpp:message-correct:0"  # 0308
FALLBACK = "urn:xmpp:fallback:0"  # 0428
DELAY = "urn:xmpp:delay"  # 0203
HINTS = "urn:xmpp:hints"  # 0334
IDS = "urn:xmpp:sid:0"  # 0359
INVITE = "jabber:x:conference"  # 0249
MUC_USER = "http://jabber.org/protocol/muc#user"  # 0045
OMEMO = "eu.siacs.conversations.axolotl"  # 0384
OOB = "jabber:x:oob"  # 0066
REACTIONS = "urn:xmpp:reactions:0"  # 0444
RECEIPTS = "urn:xmpp:receipts"  # 0184
REPLY = "urn:xmpp:reply:0"  # 0461
RETRACT = "urn:xmpp:message-retract:1"  # 0424
STATES = "http://jabber.org/protocol/chatstates"  # 0085
UPLOAD = "urn:xmpp:http:upload:0"  # 0363

FEATURES = (CORRECT, IDS, INVITE, OOB, REACTIONS, RECEIPTS, REPLY, STATES)
"""Announced features."""


def add(parent, space, name, text=None, **attributes):
    """Add an element and return it; attributes that are None are omitted."""
    given = {key: str(value) for key, value in attributes.items() if value is not None}
    child = ET.SubElement(parent, f"{{{space}}}{name}", given)
    child.text = text
    return child


def find(stanza, space, name):
    """Return an element of a stanza, or None."""
    return stanza.find(f"{{{space}}}{name}")


def text_of(stanza, space, name):
    """Return the text of an element, or ""."""
    return stanza.findtext(f"{{{space}}}{name}") or ""


def own_id(xml):
    """Return the id that the sender gave to a message."""
    origin = find(xml, IDS, "origin-id")
    return (origin.get("id") if origin is not None else None) or xml.get("id") or ""


def archive_id(xml, by):
    """Return the id that a room or the account's server gave to a message; other ids are not trusted."""
    found = (item.get("id") for item in xml.iterfind(f"{{{IDS}}}stanza-id") if (item.get("by") or "").lower() == by)
    return next(found, None) or ""


def sent_at(xml):
    """Return when a delayed message was sent, at most now; None for a message without a delay."""
    delay = find(xml, DELAY, "delay")
    try:
        stamp = datetime.fromisoformat(delay.get("stamp", "")).astimezone(UTC) if delay is not None else None
        return min(stamp, datetime.now(UTC)) if stamp is not None else None
    except (ValueError, OverflowError):
        return None


def body_of(xml):
    """Return the text of a message, and the text that it quotes."""
    body = text_of(xml, CLIENT, "body")
    for fallback in xml.iterfind(f"{{{FALLBACK}}}fallback"):
        part = find(fallback, FALLBACK, "body")
        if fallback.get("for") == REPLY and part is not None:
            start, end = (int(part.get(name) or 0) for name in ("start", "end"))
            if 0 <= start < end <= len(body):
                quoted = re.sub(r"^> ?", "", body[start:end], flags=re.MULTILINE).strip()
                return (body[:start] + body[end:]).strip(), quoted
    return body.strip(), ""


def addressed(text, nick):
    """Return a text without the agent's name in front, and whether it mentions the agent."""
    name = re.escape(nick)
    front = re.match(rf"\s*@?{name}(?:[:,]\s*|\s+)(?=\S)", text, re.IGNORECASE)
    if front:
        return text[front.end() :], True
    return text, re.search(rf"(?<!\w){name}(?!\w)", text, re.IGNORECASE) is not None


def invitation(xml):
    """Return room, inviter and password of an invitation, or None."""
    direct = find(xml, INVITE, "x")
    if direct is not None and direct.get("jid"):
        return direct.get("jid"), xml.get("from", ""), direct.get("password")
    user = find(xml, MUC_USER, "x")
    mediated = find(user, MUC_USER, "invite") if user is not None else None
    if mediated is not None:
        return xml.get("from", ""), mediated.get("from", ""), text_of(user, MUC_USER, "password") or None
    return None


def error_of(xml):
    """Return the condition and text of an error."""
    error = find(xml, CLIENT, "error")
    names = (
        [item.tag.rpartition("}")[2] for item in error if not item.tag.endswith("}text")] if error is not None else []
    )
    text = next((item.text for item in error if item.tag.endswith("}text")), None) if error is not None else None
    return names[0] if names else "undefined-condition", text or ""
