"""Known secrets that are encoded, reversed or split."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import random
import textwrap
import time
import tracemalloc
from collections.abc import Callable
from urllib.parse import quote

import pytest

from hermes_agent.core.redaction import LONGEST_HELD, Redactor, StreamMask
from hermes_agent.core.secrecy import MASK

SECRETS = (
    "Tr0ub4dor",
    "k9Xw2LmQ8vRt4ZbN7cYd",
    "p@ss/w0rd!&more+",
    "päss-wörd-länger-9",
    hashlib.sha512(b"a secret").hexdigest() * 2,
)


def base64_within(secret: str, before: int) -> str:
    """`secret` in the middle of a longer text that is encoded."""
    return base64.b64encode(b"x" * before + secret.encode() + b" and what follows").decode()


def pairs(secret: str, between: str) -> str:
    return secret.encode().hex(between)


ENCODINGS: dict[str, Callable[[str], str]] = {
    "base64": lambda s: base64.b64encode(s.encode()).decode(),
    "base64 of a line": lambda s: base64.b64encode(s.encode() + b"\n").decode(),
    "base64, second alignment": lambda s: base64_within(s, 1),
    "base64, third alignment": lambda s: base64_within(s, 2),
    "base64 of user and password": lambda s: base64_within(s, 5),
    "base64 for addresses": lambda s: base64.urlsafe_b64encode(b"\xff\xfe" + s.encode()).decode().rstrip("="),
    "base64 in lines": lambda s: "\n".join(textwrap.wrap(base64_within(s, 40), 16)),
    "base64 in lines, in JSON": lambda s: json.dumps("\n".join(textwrap.wrap(base64_within(s, 40), 16))),
    "base64 of UTF-16": lambda s: base64.b64encode(s.encode("utf-16-le")).decode(),
    "base32": lambda s: base64.b32encode(b"abc" + s.encode()).decode(),
    "hex": lambda s: s.encode().hex(),
    "hex, upper case": lambda s: s.encode().hex().upper(),
    "hex with colons": lambda s: pairs(s, ":"),
    "hex with blanks": lambda s: pairs(s, " "),
    "hex of od": lambda s: "\n".join(textwrap.wrap(pairs(s, " "), 48)),
    "hex as a literal": lambda s: "\\x" + pairs(s, ":").replace(":", "\\x"),
    "hex as numbers": lambda s: "0x" + pairs(s, ":").upper().replace(":", ", 0x"),
    "numbers": lambda s: str(list(s.encode())),
    "base64 of base64": lambda s: base64_within(base64_within(s, 0), 0),
    "base64 of base64, other alignments": lambda s: base64_within(base64_within(s, 1), 2),
    "base64 of base64 of a line": lambda s: base64.b64encode(base64.b64encode(s.encode()) + b"\n").decode(),
    "base64 of base64 in lines": lambda s: "\n".join(textwrap.wrap(base64_within(base64_within(s, 2), 1), 60)),
    "base64 of hex": lambda s: base64_within(s.encode().hex(), 1),
    "base64 of percent-encoded": lambda s: base64_within(quote(s, safe=""), 2),
    "base64 of reversed": lambda s: base64_within(s[::-1], 0),
    "base64, reversed": lambda s: base64_within(s, 2)[::-1],
    "hex of base64": lambda s: base64_within(s, 4).encode().hex(),
    "hex of base64, upper case": lambda s: base64_within(s, 3).encode().hex().upper(),
    "hex of reversed": lambda s: s.encode()[::-1].hex(),
    "percent-encoded base64": lambda s: quote(base64.b64encode(b"\xff\xfe" + s.encode()).decode(), safe=""),
    "every byte of base64 percent-encoded": lambda s: "".join(f"%{b:02X}" for b in base64.b64encode(s.encode())),
    "octal": lambda s: "".join(f"\\{byte:03o}" for byte in s.encode()),
    "reversed": lambda s: s[::-1],
    "every byte percent-encoded": lambda s: "".join(f"%{byte:02X}" for byte in s.encode()),
    "percent-encoded": lambda s: quote(s, safe=""),
    "JSON": lambda s: json.dumps(s),
    "JSON in JSON": lambda s: json.dumps(json.dumps(s)),
    "Unicode escapes": lambda s: "".join(f"\\u{ord(character):04x}" for character in s),
    "HTML": lambda s: html.escape(s),
    "HTML entities": lambda s: "".join(f"&#{byte};" for byte in s.encode()),
    "spelled with blanks": lambda s: " ".join(s),
    "spelled in lines": lambda s: "\n".join(s),
    "spelled with dashes": lambda s: "-".join(s),
    "spelled as a list": lambda s: json.dumps(list(s), ensure_ascii=False),
    "spelled with invisible characters": lambda s: "\u200b".join(s),
}


@pytest.mark.attack("secrets")
@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_known_secret_is_masked_however_a_tool_encodes_it(encoding: str, secret: str) -> None:
    redact = Redactor()
    redact.learn([secret, "another-secret-beside"])
    encoded = ENCODINGS[encoding](secret)

    shown = redact(f"before {encoded} after")

    assert shown.startswith("before ") and shown.endswith(" after")
    assert "[redacted]" in shown
    rest = shown.removeprefix("before ").removesuffix(" after").replace("[redacted]", "")
    surroundings = 92 if "alignment" in encoding or "base64" in encoding else 16
    assert len(rest) <= min(surroundings, len(encoded))
    assert redact.mask_known(f"before {encoded} after") == shown


@pytest.mark.parametrize("secret", SECRETS[1:])
def test_a_known_secret_is_masked_when_it_is_split_in_two(secret: str) -> None:
    redact = Redactor()
    redact.learn([secret])
    half = len(secret) // 2

    for between in ("\n", " ", '" + "', "\\\n", "\n+    ", "\\n"):
        assert redact(f"<{secret[:half]}{between}{secret[half:]}>") in ("<[redacted]>", "<[redacted]+>")


def test_a_long_secret_that_breaks_off_is_masked_as_far_as_it_goes() -> None:
    redact = Redactor()
    redact.learn([SECRETS[-1]])

    assert redact(f"({SECRETS[-1].encode().hex()[:300]})") == "([redacted])"


def test_a_secret_that_is_an_ordinary_word_with_a_number_is_no_secret_when_words_lie_apart() -> None:
    redact = Redactor()
    redact.learn(["admin123", "password1", "12345678"])

    text = "admin: 123; password: 1; 1 2 3 4 5 6 7 8 9"
    assert redact(text.partition("; 1 2")[0]) == text.partition("; 1 2")[0]


def test_secrets_that_are_known_raise_no_alarm_in_ordinary_text(harmless: dict[str, str]) -> None:
    redact = Redactor()
    redact.learn([*SECRETS, "admin-of-it", "0" * 12, "abababab", "correct-horse-battery", "00000001"])

    assert [name for name, text in harmless.items() if redact(text) != text] == []


def test_what_a_secret_takes_of_memory_is_bounded() -> None:
    redact = Redactor()
    tracemalloc.start()
    try:
        redact.learn([("k9Xw2LmQ8vRt4ZbN7cYd" * 50_000)])
        redact("a text")
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


def test_what_is_forgotten_is_shown_in_every_form() -> None:
    redact = Redactor()
    redact.learn(["k9Xw2LmQ8vRt4ZbN7cYd"])
    redact.forget(["k9Xw2LmQ8vRt4ZbN7cYd"])

    assert redact("k9Xw2LmQ8vRt4ZbN7cYd dYc7NbZ4tRv8QmL2wX9k") == "k9Xw2LmQ8vRt4ZbN7cYd dYc7NbZ4tRv8QmL2wX9k"


# -- in pieces --------------------------------------------------------------------------------------------------


def streamed(redact: Redactor, pieces: list[str]) -> list[str]:
    mask = StreamMask(redact)
    return [*map(mask.feed, pieces), mask.end()]


def known(*secrets: str) -> Redactor:
    redact = Redactor()
    redact.learn(secrets)
    return redact


@pytest.mark.attack("secrets")
@pytest.mark.parametrize("size", [1, 3, 7])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_secret_is_masked_however_it_is_cut_into_pieces(encoding: str, size: int) -> None:
    for secret in (SECRETS[0], SECRETS[2]):
        text = f"The key is {ENCODINGS[encoding](secret)} today, and that is all."
        redact = known(secret, "another-secret-beside")
        shown = "".join(streamed(redact, [text[i : i + size] for i in range(0, len(text), size)]))
        assert shown == redact.mask_known(text)
        assert MASK in shown


@pytest.mark.parametrize("seed", range(20))
def test_other_text_comes_whole_and_soon(seed: int) -> None:
    chance = random.Random(seed)
    words = ["the", "key", "k9Xw", "k", "p@ss", "Tr0ub", "4dor", "\n", "base64", "aGVsbG8=", "39", "58"]
    pieces = [chance.choice(words) + " " for _ in range(300)]
    out = streamed(known(*SECRETS), pieces)
    assert "".join(out) == "".join(pieces)
    shown = 0
    for number, piece in enumerate(out[:-1], 1):
        shown += len(piece)
        assert sum(map(len, pieces[:number])) - shown <= 400


def test_without_secrets_nothing_waits() -> None:
    assert streamed(Redactor(), ["a", "b"]) == ["a", "b", ""]


def test_a_long_secret_waits_as_a_whole_and_what_waits_is_bounded() -> None:
    chance = random.Random(1)
    secret = "".join(chance.choices("abcdefghijkmnopqrstuvwxyzABCDEFGH0123456789", k=6_000))
    text = f"It is {secret} then."
    redact = known(secret)
    assert "".join(streamed(redact, [text[i : i + 500] for i in range(0, len(text), 500)])) == "It is [redacted] then."
    mask = StreamMask(known(secret * 2))
    for begin in range(0, len(secret) * 2, 500):
        mask.feed((secret * 2)[begin : begin + 500])
        assert len(mask._held) <= LONGEST_HELD


def test_a_piece_costs_little() -> None:
    redact = known(*SECRETS, *(f"{number:08}-secret-value" for number in range(40)))
    pieces = [
        *["What", "a", "stream", "says", "is", "mostly", "plain", "words", "and", "numbers", "such", "as", "4711."]
    ] * 200
    mask = StreamMask(redact)
    mask.feed("the first one makes the finder")
    began = time.process_time()
    for piece in pieces:
        mask.feed(piece + " ")
    assert (time.process_time() - began) / len(pieces) < 0.001
