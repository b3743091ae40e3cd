from __future__ import annotations

import json
import threading

import pytest

from hermes_agent.core.redact import Redactor, looks_like_secret_name


@pytest.mark.parametrize(
    "secret",
    [
        "sk-abcdefghijklmnop0123",
        "sk-ant-" + "a1b2c3d4" * 3,
        "sk-or-v1-abcdefghijklmnop",
        "sk-proj-abcdefghijklmnop",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "xoxb-1234567890-abc",
        "AKIAABCDEFGHIJKLMNOP",
        "ASIAABCDEFGHIJKLMNOP",
        "github_pat_" + "a1B2c3D4_" * 5,
        "glpat-" + "a1B2c3D4e5" * 2,
        "sk_live_" + "a1B2c3D4" * 3,
        "npm_" + "a1B2" * 9,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
        "-----BEGIN OPENSSH PRIVATE KEY-----\n" + "b3BlbnNzaC1rZXk\n" * 5 + "-----END OPENSSH PRIVATE KEY-----",
        "AIzaSyAbcdefghijklmnopqrstuvwxyz0123456",
        "hf_abcdefghijklmnopqrstuvwxyz0123456789",
        "gsk_" + "a1B2c3D4" * 6,
        "xai-" + "a1B2c3D4" * 6,
        "tvly-dev-" + "a1B2c3D4" * 4,
        "dop_v1_" + "a1b2c3d4" * 8,
        "shpat_" + "a1b2c3d4" * 4,
        "ya29.a0" + "A1b2C3d4" * 6,
        "123456789:AA" + "a1B2c3D4e5F" * 3,
        "M" + "TA1b2c3d4" * 2 + "a1b2c3" + ".Gabcde." + "a1B2c3D4e" * 3,
        "AccountKey=" + "a1B2c3D4" * 8 + "==",
    ],
)
def test_what_looks_like_a_key_is_masked(secret):
    assert Redactor()(f"key={secret}, next") == "key=[redacted], next"


def test_a_password_in_an_address_is_masked_and_the_host_stays():
    assert Redactor()("clone https://me:s3cret-word@example.org/a.git") == "clone https://[redacted]@example.org/a.git"
    for text in ("http://example.org:8080/a@b", "ssh://git@example.org/a", "see https://a.example/x: me@b.example"):
        assert Redactor()(text) == text


def test_a_bearer_token_is_masked_and_the_word_stays():
    assert Redactor()("Authorization: Bearer abcdef.0123456789/xyz==") == "Authorization: Bearer [redacted]"


@pytest.mark.parametrize(
    "text",
    [
        "sk-short",
        "task-list-of-the-week",
        "a bearer of news",
        "risk-abcdefghijklmnopqrst",
        "",
        "12:30:45",
        "r8_model",
        "a.b.c",
    ],
)
def test_ordinary_words_stay(text):
    assert Redactor()(text) == text


def test_a_secret_is_masked_by_its_value_wherever_it_stands():
    redact = Redactor()
    redact.learn(["correct horse (battery)"])

    assert redact("x=correct horse (battery);y") == "x=[redacted];y"


def test_of_two_secrets_the_longer_one_is_masked_whole():
    redact = Redactor()
    redact.learn(["password"])
    redact.learn(["password-and-more"])

    assert redact("password-and-more password") == "[redacted] [redacted]"


def test_short_values_are_left_alone():
    redact = Redactor()
    redact.learn(["1", "true", "1234567"])

    assert redact("1 true 1234567") == "1 true 1234567"


@pytest.mark.parametrize(
    "secret", ['quote"d\\secret', "päss-wörd-lang", "tab\tin the secret", "line one is long enough\nline two"]
)
def test_a_secret_is_masked_in_json_too(secret):
    redact = Redactor()
    redact.learn([secret])
    for text in (json.dumps({"a": secret}), json.dumps({"a": secret}, ensure_ascii=False)):
        assert json.loads(redact(text)) == {"a": "[redacted]"}


def test_a_key_of_several_lines_is_masked_line_by_line():
    redact = Redactor()
    lines = [
        "-----BEGIN PRIVATE KEY-----",
        "MIIEvQIBADANBgkqhkiG9w0B",
        "AQEFAASCBKcwggSjAgEAAoIB",
        "-----END PRIVATE KEY-----",
    ]
    redact.learn(["\n".join(lines)])

    assert redact(f"2|{lines[1]}\n3|{lines[2]}") == "2|[redacted]\n3|[redacted]"
    assert redact("-----BEGIN PRIVATE KEY-----") == "-----BEGIN PRIVATE KEY-----"


def test_learning_in_many_threads_loses_nothing():
    redact = Redactor()
    secrets = [f"secret-number-{n:04}" for n in range(200)]
    threads = [threading.Thread(target=redact.learn, args=([s],)) for s in secrets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert redact(" ".join(secrets)) == " ".join(["[redacted]"] * 200)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("OPENAI_API_KEY", True),
        ("openai_apikey", True),
        ("GITHUB_TOKEN", True),
        ("DB_PASSWORD", True),
        ("CLIENT_SECRET", True),
        ("SSH_PRIVATE_KEY", True),
        ("PATH", False),
        ("KEYBOARD", False),
        ("MONKEY", False),
    ],
)
def test_names_that_hold_secrets(name, expected):
    assert looks_like_secret_name(name) is expected
