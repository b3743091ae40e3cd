"""What secrets look like: the detectors of the library `detect_secrets`, and shapes that it does not know.

A shape has marks, one of which stands in each of its secrets; its pattern runs over a text that has one. The library is
imported for the first text that may have a shape of its own: it costs a quarter of a second and 20 MB, which a process
that meets no such key never pays. Which of its detectors are left out, and why:
docs/decisions/0005-detectors-of-secrets.md.

Encoded and split forms of known secrets, and where a text contains them.

A text is squeezed: everything but letters and digits is removed. Each form of a secret is squeezed likewise, so that
one form stands for every separator, every line length and both alphabets of base64. One Aho-Corasick pass over the
squeezed text finds the heads of the forms; only for a head that was found is the text itself searched.
"""

from __future__ import annotations

import base64
import bisect
import codecs
import functools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote


def _any(value: str) -> bool:
    return bool(value)


_EXPANDED = re.compile(r"[<>{}()\[\]…]|^[$%*.=|&\\]|\.\.\.|^(.)\1*$")
"""What a template, a shell or a program puts in, and rows of one character (`***`, `xxxxxxxx`)."""
_PLACEHOLDER = re.compile(
    r"(?i)(?:your|my|the|some|an?|new|old|db|user|test|example|sample|dummy|fake)?[-_ ]?"
    r"(?:pass|passwd|passphrase|secret|token|credentials|(?:pass|secret|token|change|replace|example|placeholder|redacted|base64)\w*"
    r"|your.*|foo\w*|bar\w*|hidden|unset|x{3,}.*)[-_]?(?:here|me|goes.here)?\d{0,4}"
)
_WORDS = re.compile(
    r"!?[A-Za-z_.:/\\=|?-]*|0x[0-9a-fA-F]+|[a-z]+\d?(?:_[a-z]+\d?)+|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|true|false|null"
)
"""Words and names of a program: no secrets where anything may follow the name."""


def _is_literal(value: str) -> bool:
    """Say whether a value is written out, and no placeholder for one."""
    return not (_EXPANDED.search(value) or _PLACEHOLDER.fullmatch(value))


def _is_assigned(value: str) -> bool:
    """Say whether a value that a name of secrets is given is one: no placeholder, no word, no expression."""
    return _is_literal(value) and not _WORDS.fullmatch(value)


def _is_credential(value: str) -> bool:
    """Say the same of what follows a scheme in a header: base64 needs no digit."""
    return _is_literal(value) and (not _WORDS.fullmatch(value) or re.search(r"[a-z][A-Z]", value) is not None)


def _is_login(value: str) -> bool:
    """Say the same of `user:password`."""
    return _is_literal(value.partition(":")[2])


def _has_cookie(value: str) -> bool:
    """Say whether one of the pairs of a header of cookies has a value that may be a key."""
    pairs = (pair.partition("=")[2].strip() for pair in value.split(";"))
    return any(len(pair) >= 8 and _is_literal(pair) and not _WORDS.fullmatch(pair) for pair in pairs)


class _Shape(NamedTuple):
    """`what` is a pattern, or a detector of the library as `module.Class`; one of `marks` stands in every match."""

    marks: tuple[str, ...]
    what: str
    near: str = ""
    """A cheap pattern that each match has, too: for shapes without a mark, and where other words have it."""
    is_secret: Callable[[str], bool] = _any
    """Says of what was found whether it is a secret."""


_DETECTORS = (
    _Shape(("AKIA", "ASIA", "ABIA", "ACCA"), "aws.AWSKeyDetector"),
    _Shape(("AKCp",), "artifactory.ArtifactoryDetector"),
    _Shape((), "discord.DiscordBotTokenDetector", r"\.[\w-]{6}\.[\w-]{27}"),
    _Shape(("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), "github_token.GitHubTokenDetector"),
    _Shape((), "mailchimp.MailchimpDetector", r"-us\d"),
    _Shape(("-AgEIcHlw", "-AgENdGVzdC5w"), "pypi_token.PypiTokenDetector"),
    _Shape(("SG.",), "sendgrid.SendGridDetector", r"SG\.[\w-]{22}\."),
    _Shape(("xoxa-", "xoxb-", "xoxp-", "xoxo-", "xoxs-", "xoxr-", "hooks.slack.com/services/"), "slack.SlackDetector"),
    _Shape(("sq0csp-",), "square_oauth.SquareOAuthDetector"),
    _Shape(("sk_live_", "rk_live_"), "stripe.StripeDetector"),
    _Shape((":AA",), "telegram_token.TelegramBotTokenDetector", r":AA[\w-]{33}"),
)

_HEAD = r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
_TAIL = r"-{0,2}-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
_LINE = r"(?:[\s|\"',>-]|\\[nr]|\d{1,6}[|:])*+[A-Za-z0-9+/=]{40,}+"
"""A line of a key, as files, JSON, listings with line numbers, diffs and quotes show it."""

_QUOTE = r"\\{0,3}[\"']"
_IS = rf"(?:{_QUOTE})?\s{{0,3}}[:=]{{1,2}}>?\s{{0,3}}"
_SCHEME = rf"{_IS}(?:{_QUOTE})?(?i:basic|bearer|token|negotiate)\s{{1,3}}([A-Za-z0-9._~+/=-]{{8,}})"
_PAIR = r"[^\s=:;,\"'<\\]{1,64}=[^\s;\"'\\]{0,4096}"
_PAIRS = rf"\s{{0,3}}:?\s{{0,3}}(?:{_QUOTE})?({_PAIR}(?:; ?{_PAIR})*)"


def _assigned(least: int) -> str:
    """Return the pattern of what follows a name: `=` or `:`, and a value in quotes or without."""
    quoted = (rf"\\{{0,3}}{quote}([^{quote}\n\\]{{{least},200}})\\{{0,3}}{quote}" for quote in "\"'")
    return rf"{_IS}(?:{'|'.join(quoted)}|([^\s\"'`,;&)\\]{{{least},200}}))"


_TOKENS = (
    *("ccess_token", "efresh_token", "id_token", "lient_secret", "ession_token", "ccessToken", "efreshToken"),
    *("idToken", "lientSecret", "CCESS_TOKEN", "EFRESH_TOKEN", "ID_TOKEN", "LIENT_SECRET", "ESSION_TOKEN"),
)
_PASSWORDS = ("assword", "ASSWORD", "asswd", "ASSWD", "assphrase", "ASSPHRASE")
_AWS_NAMES = (
    *("ecret_access_key", "SECRET_ACCESS_KEY", "ecretAccessKey", "ecret access key", "ecret Access Key"),
    *("ecret_key", "SECRET_KEY", "ecretKey", "aws_secret", "AWS_SECRET"),
)
_AWS_VALUE = r"(?![0-9a-f]{40})([0-9A-Za-z/+]{40})(?![0-9A-Za-z/+])"
_AWS_KEY = rf"{_IS}(?:{_QUOTE})?{_AWS_VALUE}"

_OWN_SHAPES = (
    # It knows OpenAI's older keys alone; other vendors' begin so, too. With a digit or without a dash: CSS classes.
    # Here and below, what is before it is no part of a word, or a line's end as JSON writes it.
    _Shape(
        ("sk-",),
        r"sk-(?!ecdsa-sha2-|ssh-ed25519)(?:(?<![A-Za-z0-9_-]sk-)|(?<=\\[nrt]sk-)|(?<=-sk-)(?=(?:ant|or|proj|svcacct|admin)-|[A-Za-z0-9]{20}))"
        r"(?:(?=[A-Za-z_-]{0,200}\d)[A-Za-z0-9_-]{16,}|(?:[a-z]{2,4}-)?[A-Za-z0-9]{20,})",
    ),
    # Vendors that it does not know.
    _Shape(("AIza",), r"AIza[0-9A-Za-z_-]{30,}"),
    _Shape(("github_pat_",), r"github_pat_[A-Za-z0-9_]{30,}"),
    _Shape(("hf_",), r"hf_(?:(?<![A-Za-z0-9]hf_)|(?<=\\[nrt]hf_))[A-Za-z0-9]{30,}"),
    _Shape(
        ("gsk_", "r8_", "xai-", "pplx-"),
        r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))(?:gsk_|r8_|xai-|pplx-)[A-Za-z0-9]{36,}",
    ),
    _Shape(("nvapi-",), r"nvapi-[A-Za-z0-9_-]{48,}"),
    _Shape(("tvly-",), r"tvly-(?=[A-Za-z_-]{0,60}\d)[A-Za-z0-9_-]{24,}"),
    _Shape(("glsa_", "lin_api_"), r"(?:glsa_|lin_api_)[A-Za-z0-9_]{32,}"),
    _Shape(("dp.pt.",), r"dp\.pt\.[A-Za-z0-9]{40,}"),
    _Shape(("dop_v1_", "doo_v1_", "dor_v1_"), r"do[opr]_v1_[a-f0-9]{64}"),
    _Shape(("shpat_", "shpss_", "shppa_", "shpca_"), r"shp(?:at|ss|pa|ca)_[a-fA-F0-9]{32}"),
    _Shape(("ya29.",), r"ya29\.[A-Za-z0-9_-]{24,}"),
    _Shape(("AGE-SECRET-KEY-1",), r"AGE-SECRET-KEY-1[A-Z0-9]{40,}"),
    # Kinds of tokens of vendors that it knows.
    _Shape(
        ("xapp-", "xoxe", "xoxc-", "xoxd-", "xoxa-", "xoxp-", "xoxr-", "xoxs-", "xoxb-"),
        r"(?:xapp|xoxe(?:\.xox[bp])?|xox[a-dp-s])-[A-Za-z0-9%-]{20,}",
    ),
    _Shape(("/bot",), r"/bot(\d{8,10}:[A-Za-z0-9_-]{35})"),
    _Shape(
        ("sk_test_", "rk_test_", "sk_live_", "rk_live_", "whsec_"),
        r"(?:[rs]k_(?:test|live)_|whsec_)[A-Za-z0-9]{16,}",
    ),
    _Shape(("sq0atp-",), r"sq0atp-[0-9A-Za-z_-]{22,}"),
    # It stops at 50 characters, and finds nothing of what is longer: GitLab's tokens carry where they belong.
    _Shape(
        (
            *("glpat-", "gldt-", "glft-", "glsoat-", "glrt-", "glcbt-", "glimt-", "glptt-", "glagent-", "gloas-"),
            "GR1348941",
        ),
        r"(?:gl(?:pat|dt|ft|soat|rt|cbt|imt|ptt|agent|oas)-|GR1348941)[A-Za-z0-9_-]{20,}(?:\.[0-9a-z]{2}\.[0-9a-z]{9})?",
    ),
    # It wants 88 characters, as storage has them.
    _Shape(("AccountKey=",), r"AccountKey=[A-Za-z0-9+/=]{40,}"),
    # It wants the line of an .npmrc around it, and takes the square of a line's length.
    _Shape(("npm_",), r"npm_[A-Za-z0-9]{36}"),
    # It takes the square of the length of a base64 text without a dot: seconds for a page of encoded JSON.
    _Shape(
        ("eyJ",),
        r"eyJ(?:(?<![A-Za-z0-9_-]eyJ)|(?<=\\[nrt]eyJ))[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*+)?",
    ),
    # It finds the head alone, and not the key; and none whose end is cut off.
    _Shape(("PRIVATE KEY",), rf"{_HEAD}(?=(?:(?!-----)[\s\S]){{20}})(?:[^-]*(?:-(?!----)[^-]*)*{_TAIL}|(?:{_LINE})+)"),
    _Shape(("Private-Lines:",), rf"Private-Lines: \d{{1,4}}((?:{_LINE})+)"),
    # Its password ends before characters that passwords have (`!`, `$`, `&`).
    _Shape(("://",), r"://([^\s/:@\"']{0,100}:[^\s/@\"']{4,200})(?=@)", is_secret=_is_login),
    # Headers, also as JSON and programs write them.
    _Shape(("earer ",), r"[Bb]earer ([A-Za-z0-9._~+/=-]{16,})"),
    *(_Shape((mark,), mark + _SCHEME, is_secret=_is_credential) for mark in ("uthorization", "UTHORIZATION")),
    *(_Shape((mark,), mark + _PAIRS, is_secret=_has_cookie) for mark in ("ookie:", "OOKIE:", "ookie\"", "ookie'")),
    # Names of secrets with a value, in addresses, forms, settings, command lines and JSON. One pattern for each mark:
    # what begins with plain letters is searched for ten times faster.
    *(_Shape((mark,), mark + _assigned(8), is_secret=_is_assigned) for mark in _TOKENS),
    *(_Shape((mark,), mark + _assigned(6), is_secret=_is_assigned) for mark in _PASSWORDS),
    _Shape(("--password ", "--passwd "), r"--passw(?:or)?d ([^\s\"'`,;&)\\]{6,200})", is_secret=_is_assigned),
    *(_Shape((mark,), mark + _AWS_KEY) for mark in _AWS_NAMES),
    _Shape(("AKIA", "ASIA"), r"A[KS]IA[A-Z0-9]{16}[\s\"',;:|]{1,8}" + _AWS_VALUE),
)  # fmt: skip

_OF_MARK = tuple((mark, shape) for shape in (*_DETECTORS, *_OWN_SHAPES) for mark in shape.marks)
MARKS = tuple(mark for mark, _ in _OF_MARK)
_NEAR = {shape: re.compile(shape.near) for shape in _DETECTORS if shape.near}
_WITHOUT = tuple(shape for shape in _DETECTORS if not shape.marks)
search_unmarked = re.compile("|".join(shape.near for shape in _WITHOUT)).search
"""Says whether a secret may be in a text in which no mark is."""
_REST = re.compile(r"[A-Za-z0-9_+/=-]*")
LEAST_GROUP = 8
"""A shorter group of a detector's pattern is a part of the token, and not the secret in it."""


def secret_spans(text: str, marks: Collection[int]) -> Iterator[tuple[int, int]]:
    """Yield where something in `text` looks like a secret, unordered; spans may overlap.

    Args:
        marks: which of `MARKS` are in it, as indices.
    """
    for shape in _WITHOUT:
        if _NEAR[shape].search(text):
            yield from _shape_spans(shape, text)
    for shape in {_OF_MARK[index][1] for index in marks}:
        if shape not in _NEAR or _NEAR[shape].search(text):
            yield from _shape_spans(shape, text)


def _shape_spans(shape: _Shape, text: str) -> Iterator[tuple[int, int]]:
    least = LEAST_GROUP if shape in _DETECTORS else 1
    for pattern in _patterns(shape):
        for match in pattern.finditer(text):
            if not shape.is_secret(match[match.lastindex or 0]):
                continue
            group = match.lastindex if match.lastindex and len(match[match.lastindex]) >= least else 0
            # A detector stops at the least length; what a longer token ends with would stay to be read.
            yield match.start(group), _REST.match(text, match.end(group)).end()  # type: ignore[union-attr]


@functools.cache
def _patterns(shape: _Shape) -> tuple[re.Pattern[str], ...]:
    if shape not in _DETECTORS:
        return (re.compile(shape.what),)
    import importlib  # the library brings an HTTP client, see the module's docstring

    module, _, name = shape.what.partition(".")
    detector = getattr(importlib.import_module(f"detect_secrets.plugins.{module}"), name)
    return tuple(detector.denylist)


LONGEST_ENCODED = 1_024
"""Encoded forms cover this many characters of a secret."""

HEAD = 40
"""Characters of a form that the search knows: they bound its memory."""

HEAD_TWICE = 20
"""Of what was encoded twice, which has many forms."""

SHORTEST_FORM = 10
"""Shorter squeezed forms are not searched: they occur in ordinary words."""
SHORTEST_WORDS = 12
"""A shorter secret must be spelled letter by letter: `admin123` is no secret in `admin: 123`."""
SHORTEST_SPELLED = 8
SHORTEST_DIGITS = 16
"""Shorter forms of digits alone occur in tables of numbers."""
LEAST_VARIETY = 4
"""A secret of fewer different characters has no encoded forms: it would be found at each place of a long run."""

_INVISIBLE = "\xa0\xad\u2009\u200b\u200c\u200d\u2028\u2029\u202f\u2060\u3000\ufeff"
_BYTES_OF_INVISIBLE = tuple(character.encode() for character in _INVISIBLE)
_DELETED = bytes(code for code in range(128) if not chr(code).isalnum())
_GAP = rf"(?:\\+[nrt]|[\x00-/:-@\[-`{{-\x7f{_INVISIBLE}])"
"""What squeezing removes; the ends of lines also as JSON writes them."""
_WIDEST = 40
"""Characters of one gap: what lies further apart belongs to different things."""


class _Form(NamedTuple):
    head: str
    """Squeezed, as the rest."""
    rest: str
    spelled: bool
    """Only found letter by letter."""


class EncodedSecrets:
    """Finds the encoded and split forms of a set of secrets."""

    def __init__(self, secrets: Iterable[str]) -> None:
        from ahocorasick_rs import AhoCorasick, Implementation  # compiled code, which most commands never need

        self._forms: dict[str, list[_Form]] = {}
        for form in {form for secret in secrets for form in _forms(secret)}:
            self._forms.setdefault(form.head, []).append(form)
        self._heads = list(self._forms)
        self._sorted = tuple(sorted(self._heads))
        self._finder: Any = AhoCorasick(self._heads, implementation=Implementation.ContiguousNFA)

    def find_partial(self, text: str) -> int:
        """Return where the longest end of `text` begins that may be the beginning of a form; its length for none."""
        if not self._heads:
            return len(text)
        # a gap is bounded, and so is the window
        start = max(0, len(text) - HEAD * (_WIDEST + 1))
        places = [m.start() for m in _SIGNIFICANT.finditer(text, start) if m[1] is not None][-HEAD:]
        letters = "".join(text[place] for place in places)
        for length in range(len(letters), 0, -1):
            if has_prefix(self._sorted, letters[-length:]):
                return places[-length]
        return len(text)

    def find_spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where `text` contains a form of a secret, unordered; spans may overlap."""
        if not self._heads or len(text) < SHORTEST_SPELLED:
            return
        hits = self._finder.find_matches_as_indexes(_squeeze(text), overlapping=True)
        for index in {index for index, _, _ in hits}:
            head = self._heads[index]
            for spelled in {form.spelled for form in self._forms[head]}:
                rests = [form.rest for form in self._forms[head] if form.spelled is spelled]
                for match in _pattern(head, spelled).finditer(text):
                    yield match.start(), max(_end(text, match.end(), rest) for rest in rests)


_SIGNIFICANT = re.compile(rf"{_GAP}|(.)", re.DOTALL)
"""What squeezing removes, or, as the group, keeps."""


def has_prefix(texts: Sequence[str], beginning: str) -> bool:
    """Say whether one of the sorted `texts` has this beginning."""
    place = bisect.bisect_left(texts, beginning)
    return place < len(texts) and texts[place].startswith(beginning)


def _squeeze(text: str) -> str:
    raw = text.encode("utf-8", "replace")
    if len(raw) != len(text):
        for invisible in _BYTES_OF_INVISIBLE:
            raw = raw.replace(invisible, b"")
    if b"\\" in raw:  # ends of lines, as JSON writes them
        raw = raw.replace(b"\\n", b"").replace(b"\\r", b"").replace(b"\\t", b"")
    return raw.translate(None, _DELETED).decode()


def _pattern(head: str, spelled: bool) -> re.Pattern[str]:
    return re.compile(f"{_GAP}{{{int(spelled)},{_WIDEST}}}".join(map(re.escape, head)))


_ONE_GAP = re.compile(f"{_GAP}{{0,{_WIDEST}}}")


def ends_in_gap(text: str, at: int) -> bool:
    """Say whether nothing but one gap follows a place of a text."""
    return _ONE_GAP.match(text, at).end() == len(text)  # type: ignore[union-attr]


def _end(text: str, at: int, rest: str) -> int:
    """Return where the form ends of which `rest` follows, as far as it is there."""
    end = at
    for character in rest:
        at = _ONE_GAP.match(text, at).end()  # type: ignore[union-attr]
        if text[at : at + 1] != character:
            break
        at = end = at + 1
    return end


def _forms(secret: str) -> Iterator[_Form]:
    """Yield the forms in which `secret` is searched for; those that are too short are left out."""
    secret = secret[:LONGEST_ENCODED].encode("utf-8", "replace").decode()
    if len(set(secret)) < LEAST_VARIETY:
        return
    plain = _squeeze(secret)
    for text in (plain, plain[::-1]):
        if len(secret) >= SHORTEST_WORDS:
            yield from _searchable(text)
        elif len(text) >= SHORTEST_SPELLED:
            yield _Form(text, "", spelled=True)
    for head, texts in ((HEAD, _encoded(secret)), (HEAD_TWICE, _encoded_twice(secret))):
        for squeezed in map(_squeeze, texts):
            if squeezed != plain:
                yield from _searchable(squeezed, head)


def _searchable(text: str, head: int = HEAD) -> Iterator[_Form]:
    least = SHORTEST_DIGITS if text.isdigit() else SHORTEST_FORM
    if len(text) >= least:
        yield _Form(text[:head], text[head:], spelled=False)


def _encoded(secret: str) -> Iterator[str]:
    raw = secret.encode()
    for data in (raw, secret.encode("utf-16-le")):
        for shift in range(3):
            yield _base64(data, shift)
    for shift in range(5):
        yield _inner(base64.b32encode(bytes(shift) + raw + bytes(4)).decode(), shift, len(raw), 5)
    for pairs in (raw.hex(" "), raw.hex(" ").upper()):
        yield pairs
        for before in ("0x", "x"):  # `0x41, 0x42`; `\x41\x42` and `&#x41;&#x42;`
            yield before + pairs.replace(" ", before)
    yield raw[::-1].hex()
    yield "".join(f"{byte:03o}" for byte in raw)
    yield "".join(map(str, raw))
    units = secret.encode("utf-16-be").hex(" ", 2)
    for each in (units, units.upper()):
        yield "u" + each.replace(" ", "u")
    yield codecs.encode(secret, "rot13")
    if not secret.isalnum():
        yield secret.translate(_ENTITIES)
    if not secret.isascii():
        yield json.dumps(secret)
    if not secret.isascii() or not secret.isalnum():
        for safe in ("", "/", "!'()*~", "!$&'()*+,;=:@/?~"):
            text = quote(secret, safe=safe)
            yield text
            yield _ESCAPE.sub(_lower, text)


def _encoded_twice(secret: str) -> Iterator[str]:
    """Yield the forms of a secret that was encoded in base64 and then once more, or in base64 after another code."""
    raw = secret.encode()
    for shift in range(3):
        once = _base64(raw, shift)
        yield from _in_base64(once)
        yield once.encode().hex()
        yield once.encode().hex().upper()
        yield once[::-1]
        if not once.isalnum():
            yield quote(once, safe="")
            yield _ESCAPE.sub(_lower, quote(once, safe=""))
    for once in dict.fromkeys((raw.hex(), secret[::-1], quote(secret, safe=""))):
        if once != secret:
            yield from _in_base64(once)


def _in_base64(text: str) -> Iterator[str]:
    return (_base64(text.encode(), shift) for shift in range(3))


def _base64(data: bytes, shift: int) -> str:
    """Return what of the base64 of `data` after so many bytes is the same whatever stands around it."""
    return _inner(base64.b64encode(bytes(shift) + data + bytes(2)).decode(), shift, len(data), 6)


def _lower(match: re.Match[str]) -> str:
    return match[0].lower()


_ESCAPE = re.compile("%..")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


def _inner(encoded: str, shift: int, length: int, bits: int) -> str:
    """Return the characters that depend on nothing but `length` bytes after the first `shift` ones."""
    return encoded[-(-8 * shift // bits) : 8 * (shift + length) // bits]
