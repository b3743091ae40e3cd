"""What secrets look like: the detectors of the library `detect_secrets`, and shapes that it does not know.

A shape has marks, one of which stands in each of its secrets; its pattern runs over a text that has one. The library is
imported for the first text that may have a shape of its own: it costs a quarter of a second and 20 MB, which a process
that meets no such key never pays. Which of its detectors are left out, and why:
docs/decisions/0005-detectors-of-secrets.md.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

__all__ = ["MARKS", "secret_spans", "search_unmarked"]


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
