"""Decide which values are secrets: by declaration, by name, by form; never by length alone.

Keys of known vendors are not listed here: `core.secret_forms` finds them in every text, also unknown ones.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

MASK = "[redacted]"
"""Replaces a secret."""

NameKind = Literal["secret", "vague", "public", ""]

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET_WORDS = ("token", "secret", "secrets", "password", "passwords", "passwd", "passphrase", "passcode", "pwd")
_SECRET_ENDS = ("token", "secret", "password", "passwd", "passphrase", "apikey", "privatekey", "secretkey", "accesskey")
"""Ends of words that are written without a separator."""
_VAGUE_WORDS = (
    *("key", "keys", "tokens", "auth", "authorization", "credential", "credentials", "cookie", "cookies"),
    *("private", "pass", "pat", "psk", "jwt", "creds"),
)
"""Words that also occur in names of files, modes and amounts: the value must not be plainly public."""
_SECRET_PAIRS = {
    *(("api", "key"), ("access", "key"), ("private", "key"), ("secret", "key"), ("signing", "key")),
    ("secret", "id"),  # of AppRoles
}
_PUBLIC_ENDS = frozenset(
    """
    address agent algorithm account age audience backend bits bytes command count delay dir directory disabled domain
    email enabled endpoint env expiry expires field file files fingerprint flow format header help hint home host
    hostname id ids interval issuer kind label layout length level limit max mechanism min mode model name names path
    paths policy port prefix prompt provider realm region repeat required retries scheme scope scopes server service
    size sock socket store strategy suffix timeout ttl type uri url user username variable verify version
    """.split()  # noqa: SIM905 - five lines instead of ninety
)
"""Last words of names of public values, which describe a secret or are unrelated to one."""
_PUBLIC_WORDS = frozenset(("public", "pub"))
_AMOUNTS = frozenset("budget context input limit max maximum min minimum num output per total used".split())  # noqa: SIM905

_SWITCH = re.compile(r"(?i:true|false|yes|no|on|off|none|null|auto|default|enabled|disabled)")
_PATH = re.compile(r"(?:~|\.{1,2})?/[^\s+=]*")
_HOST = re.compile(
    r"\[?(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{0,4}(?:\d+(?:\.\d+){3})?\]?(?::\d+)?|:\d{1,5}"
    r"|\d{1,3}(?:\.\d{1,3}){3}(?:[:/]\d+)?"
    r"|(?:[a-z0-9_-]+\.)+[a-z]{2,24}\.?(?::\d+)?|localhost(?::\d+)?"
)
_ADDRESS = re.compile(r"[\w.+-]*@[\w-]+(?:[.:][\w.:-]+)*")
_MEDIA_TYPE = re.compile(r"(?:application|audio|image|multipart|text|video)/[\w.+*-]+(?:[;,].*)?|\*/\*")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

SHORTEST_RANDOM = 16
"""Shorter texts of letters and digits are names as often as keys."""
_RUN = re.compile(rf"[A-Za-z0-9]{{{SHORTEST_RANDOM},}}")
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}")


def name_kind(name: str) -> NameKind:
    """Return what the name of a setting or variable says about its value.

    `secret`: it is a secret. `vague`: it is a secret unless it is plainly public (a path, a mode, a number). `public`:
    it describes a secret, or is an ordinary setting. Empty: the name says nothing.
    """
    if name in ("PWD", "OLDPWD"):  # directories, which every shell exports
        return "public"
    words = [word.lower() for word in _WORD.findall(name)]
    while words and words[-1].isdigit():
        words.pop()
    if not words:
        return ""
    if (words[-1] in _PUBLIC_ENDS and tuple(words[-2:]) not in _SECRET_PAIRS) or _PUBLIC_WORDS & set(words):
        return "public"
    if words[-1] == "tokens" and _AMOUNTS & set(words):
        return "public"
    if any(word in _SECRET_WORDS or word.endswith(_SECRET_ENDS) for word in words):
        return "secret"
    if _SECRET_PAIRS & set(itertools.pairwise(words)):
        return "secret"
    return "vague" if any(word in _VAGUE_WORDS for word in words) else ""


def looks_like_secret_name(name: str) -> bool:
    """Return whether to treat a setting or variable of this name as a secret."""
    return name_kind(name) in ("secret", "vague")


def is_public_value(value: str) -> bool:
    """Return whether a value is public even under a vague name: a switch, path, host, address or URL."""
    text = value.strip()
    plain = (_SWITCH, _PATH, _HOST, _ADDRESS, _MEDIA_TYPE)
    if any(pattern.fullmatch(text) for pattern in plain):
        return True
    return "://" in text and " " not in text and not any(_address_secrets(text))


def is_random(value: str) -> bool:
    """Return whether a value looks generated, as keys do.

    Its mix of letters and digits occurs in no word, host or name.
    """
    text = value.strip()
    if is_public_value(text) or _UUID.fullmatch(text):
        return False
    if any(_is_mixed(run, 5) and re.search(r"\d.*\d", run) for run in _RUN.findall(text)):
        return not re.search(r"\s", text)
    return _ENCODED.fullmatch(text) is not None and _has_all_classes(text) and _is_mixed(text, 4)


def find_secrets(name: str, value: str, *, declared: bool | None = None) -> Iterator[str]:
    """Yield the secrets in a setting or variable: its value, parts of a URL, the credentials of a header.

    Args:
        declared: whether its plugin or its schema declares it as a secret; None if neither does.
    """
    kind = name_kind(name)
    if declared is None:
        named = kind == "secret" or (kind == "vague" and not is_public_value(value))
        secret = (named and not _SWITCH.fullmatch(value.strip())) or (kind != "public" and is_random(value))
    else:
        secret = declared
    if not secret:
        yield from _address_secrets(value)
        return
    yield value
    scheme, _, credentials = value.strip().partition(" ")
    if scheme.lower() in ("bearer", "basic", "token"):
        yield credentials.strip()


def _address_secrets(value: str) -> Iterator[str]:
    """Yield the password of a URL, and the query parameters and path segments that are keys.

    Webhooks have such segments.
    """
    if "://" not in value:
        return
    try:
        parts = urlsplit(value.strip())
        password = parts.password
    except ValueError:  # not a URL
        return
    if password:
        yield password
        yield unquote(password)
    for name, item in parse_qsl(parts.query):
        if looks_like_secret_name(name) or is_random(item):
            yield item
    yield from filter(is_random, parts.path.split("/"))


def _is_mixed(text: str, each: int) -> bool:
    """Return whether the kind of character changes at least once in `each` characters."""
    kinds = ["d" if c.isdigit() else "u" if c.isupper() else "l" for c in text if c.isalnum()]
    changes = sum(a != b and (a, b) != ("u", "l") for a, b in itertools.pairwise(kinds))
    return changes * each >= len(kinds)


def _has_all_classes(text: str) -> bool:
    return all(re.search(one, text) for one in ("[a-z]", "[A-Z]", "[0-9]"))
