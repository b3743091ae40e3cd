"""Forms of secrets: the formats of vendors' keys, and encoded or split forms of known secrets.

A format has marks, and each secret of it contains one of them. Its pattern runs only over texts with a mark. The
library `detect_secrets` brings a part of the formats. It costs 0.25 s and 20 MB, so it is imported for the first text
that may contain one. docs/decisions/0005-detectors-of-secrets.md says which of its detectors are left out.

To find encoded and split secrets, a text is squeezed: everything but letters and digits is removed. The forms of a
secret are squeezed likewise, so one form stands for every separator, line length and alphabet of base64. One
Aho-Corasick pass over the squeezed text finds the heads of the forms; only for a head that was found is the text itself
searched.
"""

from __future__ import annotations

import base64
import bisect
import codecs
import functools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from hermes_agent.core.lazy_types import LazyNamedTuple


def _any(value: str) -> bool:
    return bool(value)


_EXPANDED = re.compile(r"[<>{}()\[\]…]|^[$%*.=|&\\]|\.\.\.|^(.)\1*$")
"""Placeholders of templates, shells and programs, and repeated characters."""
_PLACEHOLDER = re.compile(
    r"(?i)(?:your|my|the|some|an?|new|old|db|user|test|example|sample|dummy|fake)?[-_ ]?"
    r"(?:pass|passwd|passphrase|secret|token|credentials|(?:pass|secret|token|change|replace|example|placeholder|redacted|base64)\w*"
    r"|your.*|foo\w*|bar\w*|hidden|unset|x{3,}.*)[-_]?(?:here|me|goes.here)?\d{0,4}"
)
_WORDS = re.compile(
    r"!?[A-Za-z_.:/\\=|?-]*|0x[0-9a-fA-F]+|[a-z]+\d?(?:_[a-z]+\d?)+|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|true|false|null"
)
"""Words and identifiers of a program: no secrets where any text may follow the name."""


def _is_literal(value: str) -> bool:
    """Return whether a value is literal, not a placeholder."""
    return not (_EXPANDED.search(value) or _PLACEHOLDER.fullmatch(value))


def _is_assigned(value: str) -> bool:
    """Return whether a value after the name of a secret is one: no placeholder, no word, no expression."""
    return _is_literal(value) and not _WORDS.fullmatch(value)


def _is_credential(value: str) -> bool:
    """Return whether the text after the scheme of a header is a secret: base64 needs no digit."""
    return _is_literal(value) and (not _WORDS.fullmatch(value) or re.search(r"[a-z][A-Z]", value) is not None)


def _is_login(value: str) -> bool:
    """Return whether `user:password` contains a literal password."""
    return _is_literal(value.partition(":")[2])


def _has_cookie(value: str) -> bool:
    """Return whether one of the pairs of a cookie header has a value that may be a key."""
    pairs = (pair.partition("=")[2].strip() for pair in value.split(";"))
    return any(len(pair) >= 8 and _is_literal(pair) and not _WORDS.fullmatch(pair) for pair in pairs)


class _Shape(LazyNamedTuple):
    """A format of secrets, of which each match contains a mark.

    `what` is a pattern, or a detector of the library as `module.Class`.
    """

    marks: tuple[str, ...]
    what: str
    near: str = ""
    """A cheap pattern that each match has, too: for formats without a mark, and for marks that other words contain."""
    is_secret: Callable[[str], bool] = _any
    """Decides whether a match is a secret."""


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
"""A line of a key in files, JSON, listings with line numbers, diffs and quotes."""

_QUOTE = r"\\{0,3}[\"']"
_IS = rf"(?:{_QUOTE})?\s{{0,3}}[:=]{{1,2}}>?\s{{0,3}}"
_SCHEME = rf"{_IS}(?:{_QUOTE})?(?i:basic|bearer|token|negotiate)\s{{1,3}}([A-Za-z0-9._~+/=-]{{8,}})"
_PAIR = r"[^\s=:;,\"'<\\]{1,64}=[^\s;\"'\\]{0,4096}"
_PAIRS = rf"\s{{0,3}}:?\s{{0,3}}(?:{_QUOTE})?({_PAIR}(?:; ?{_PAIR})*)"


def _assigned(least: int) -> str:
    """Return the pattern of an assignment: `=` or `:`, and a value with or without quotes."""
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
    # The library knows only OpenAI's older keys; keys of other vendors have the same beginning. A digit, or no dash,
    # excludes CSS classes. Here and below a match begins at the start of a word, or after a line end as in JSON.
    _Shape(
        ("sk-",),
        r"sk-(?!ecdsa-sha2-|ssh-ed25519)(?:(?<![A-Za-z0-9_-]sk-)|(?<=\\[nrt]sk-)|(?<=-sk-)(?=(?:ant|or|proj|svcacct|admin)-|[A-Za-z0-9]{20}))"
        r"(?:(?=[A-Za-z_-]{0,200}\d)[A-Za-z0-9_-]{16,}|(?:[a-z]{2,4}-)?[A-Za-z0-9]{20,})",
    ),
    # Vendors that the library does not know.
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
    # Kinds of tokens of vendors that the library knows.
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
    # The library stops at 50 characters and finds no longer token: GitLab's tokens end with routing data.
    _Shape(
        (
            *("glpat-", "gldt-", "glft-", "glsoat-", "glrt-", "glcbt-", "glimt-", "glptt-", "glagent-", "gloas-"),
            "GR1348941",
        ),
        r"(?:gl(?:pat|dt|ft|soat|rt|cbt|imt|ptt|agent|oas)-|GR1348941)[A-Za-z0-9_-]{20,}(?:\.[0-9a-z]{2}\.[0-9a-z]{9})?",
    ),
    # The library needs 88 characters, the length of a storage key.
    _Shape(("AccountKey=",), r"AccountKey=[A-Za-z0-9+/=]{40,}"),
    # The library needs the line of an .npmrc around the token, and takes quadratic time in the length of a line.
    _Shape(("npm_",), r"npm_[A-Za-z0-9]{36}"),
    # The library takes quadratic time for base64 text without a dot: seconds for a page of encoded JSON.
    _Shape(
        ("eyJ",),
        r"eyJ(?:(?<![A-Za-z0-9_-]eyJ)|(?<=\\[nrt]eyJ))[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*+)?",
    ),
    # The library finds only the header line, not the key, and no key with a truncated end.
    _Shape(("PRIVATE KEY",), rf"{_HEAD}(?=(?:(?!-----)[\s\S]){{20}})(?:[^-]*(?:-(?!----)[^-]*)*{_TAIL}|(?:{_LINE})+)"),
    _Shape(("Private-Lines:",), rf"Private-Lines: \d{{1,4}}((?:{_LINE})+)"),
    # The library ends a password before characters that passwords contain (`!`, `$`, `&`).
    _Shape(("://",), r"://([^\s/:@\"']{0,100}:[^\s/@\"']{4,200})(?=@)", is_secret=_is_login),
    # Headers, also in JSON and program code.
    _Shape(("earer ",), r"[Bb]earer ([A-Za-z0-9._~+/=-]{16,})"),
    *(_Shape((mark,), mark + _SCHEME, is_secret=_is_credential) for mark in ("uthorization", "UTHORIZATION")),
    *(_Shape((mark,), mark + _PAIRS, is_secret=_has_cookie) for mark in ("ookie:", "OOKIE:", "ookie\"", "ookie'")),
    # Names of secrets with a value, in URLs, forms, settings, command lines and JSON. One pattern for each mark, since
    # a pattern that begins with plain letters is ten times faster.
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
"""Finds whether a text without marks may contain a secret."""
_REST = re.compile(r"[A-Za-z0-9_+/=-]*")
LEAST_GROUP = 8
"""A shorter group in a detector's pattern is a part of the token, not the secret itself."""


def secret_spans(text: str, marks: Collection[int]) -> Iterator[tuple[int, int]]:
    """Yield the spans in `text` that have the form of a secret, unordered; spans may overlap.

    Args:
        marks: indices of the `MARKS` that the text contains.
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
            # A detector stops at the minimum length; the rest of a longer token would stay readable.
            yield match.start(group), _REST.match(text, match.end(group)).end()  # type: ignore[union-attr]


@functools.cache
def _patterns(shape: _Shape) -> tuple[re.Pattern[str], ...]:
    if shape not in _DETECTORS:
        return (re.compile(shape.what),)
    import importlib  # the library imports an HTTP client, see the docstring of this module

    module, _, name = shape.what.partition(".")
    detector = getattr(importlib.import_module(f"detect_secrets.plugins.{module}"), name)
    return tuple(detector.denylist)


LONGEST_ENCODED = 1_024
"""Characters of a secret that the encoded forms cover."""

HEAD = 40
"""Characters of a form in the automaton; they limit its memory."""

HEAD_TWICE = 20
"""The same for forms that are encoded twice, of which there are many."""

SHORTEST_FORM = 10
"""Shorter squeezed forms are not searched, since they occur in ordinary words."""
SHORTEST_WORDS = 12
"""A shorter secret is found only without gaps, since its parts are words."""
SHORTEST_SPELLED = 8
SHORTEST_DIGITS = 16
"""Shorter forms of digits alone occur in tables of numbers."""
LEAST_VARIETY = 4
"""A secret of fewer different characters has no encoded forms: they would match at each position of a long run."""

_INVISIBLE = "\xa0\xad\u2009\u200b\u200c\u200d\u2028\u2029\u202f\u2060\u3000\ufeff"
_BYTES_OF_INVISIBLE = tuple(character.encode() for character in _INVISIBLE)
_DELETED = bytes(code for code in range(128) if not chr(code).isalnum())
_GAP = rf"(?:\\+[nrt]|[\x00-/:-@\[-`{{-\x7f{_INVISIBLE}])"
"""Characters that squeezing removes, and line ends as in JSON."""
_WIDEST = 40
"""Characters of one gap; parts with more distance do not belong together."""


class _Form(LazyNamedTuple):
    head: str
    """Squeezed, like the rest."""
    rest: str
    spelled: bool
    """Found only without gaps."""


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
        """Return where the longest end of `text` begins that may be the beginning of a form.

        It is the length of `text` if there is none.
        """
        if not self._heads:
            return len(text)
        # a gap is limited, so the window is, too
        start = max(0, len(text) - HEAD * (_WIDEST + 1))
        places = [m.start() for m in _SIGNIFICANT.finditer(text, start) if m[1] is not None][-HEAD:]
        letters = "".join(text[place] for place in places)
        for length in range(len(letters), 0, -1):
            if has_prefix(self._sorted, letters[-length:]):
                return places[-length]
        return len(text)

    def find_spans(self, text: str) -> Iterable[tuple[int, int]]:
        """Return the spans of forms of secrets in `text`, unordered; spans may overlap."""
        if not self._heads or len(text) < SHORTEST_SPELLED:
            return ()
        hits = self._finder.find_matches_as_indexes(_squeeze(text), overlapping=True)
        return self._spans_of(hits, text) if hits else ()

    def _spans_of(self, hits: Iterable[tuple[int, int, int]], text: str) -> Iterator[tuple[int, int]]:
        for index in {index for index, _, _ in hits}:
            head = self._heads[index]
            for spelled in {form.spelled for form in self._forms[head]}:
                rests = [form.rest for form in self._forms[head] if form.spelled is spelled]
                for match in _pattern(head, spelled).finditer(text):
                    yield match.start(), max(_end(text, match.end(), rest) for rest in rests)


_SIGNIFICANT = re.compile(rf"{_GAP}|(.)", re.DOTALL)
"""A gap, or a significant character as the group."""


def has_prefix(texts: Sequence[str], beginning: str) -> bool:
    """Return whether one of the sorted `texts` has this beginning."""
    place = bisect.bisect_left(texts, beginning)
    return place < len(texts) and texts[place].startswith(beginning)


def _squeeze(text: str) -> str:
    raw = text.encode("utf-8", "replace")
    if len(raw) != len(text):
        for invisible in _BYTES_OF_INVISIBLE:
            raw = raw.replace(invisible, b"")
    if b"\\" in raw:  # line ends as in JSON
        raw = raw.replace(b"\\n", b"").replace(b"\\r", b"").replace(b"\\t", b"")
    return raw.translate(None, _DELETED).decode()


def _pattern(head: str, spelled: bool) -> re.Pattern[str]:
    return re.compile(f"{_GAP}{{{int(spelled)},{_WIDEST}}}".join(map(re.escape, head)))


_ONE_GAP = re.compile(f"{_GAP}{{0,{_WIDEST}}}")


def ends_in_gap(text: str, at: int) -> bool:
    """Return whether the text ends with one gap that begins at `at`."""
    return _ONE_GAP.match(text, at).end() == len(text)  # type: ignore[union-attr]


def _end(text: str, at: int, rest: str) -> int:
    """Return the end of the form with this `rest`, which begins at `at`, as far as the text goes."""
    end = at
    for character in rest:
        at = _ONE_GAP.match(text, at).end()  # type: ignore[union-attr]
        if text[at : at + 1] != character:
            break
        at = end = at + 1
    return end


def _forms(secret: str) -> Iterator[_Form]:
    """Yield the forms of `secret` to search; forms that are too short are left out."""
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
    """Yield forms that are encoded in base64 after base64 or after another encoding."""
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
    """Return the part of the base64 of `data` that no bytes around it change.

    Args:
        shift: number of bytes before `data` in the encoded block.
    """
    return _inner(base64.b64encode(bytes(shift) + data + bytes(2)).decode(), shift, len(data), 6)


def _lower(match: re.Match[str]) -> str:
    return match[0].lower()


_ESCAPE = re.compile("%..")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


def _inner(encoded: str, shift: int, length: int, bits: int) -> str:
    """Return the characters that depend only on `length` bytes after the first `shift` ones."""
    return encoded[-(-8 * shift // bits) : 8 * (shift + length) // bits]
