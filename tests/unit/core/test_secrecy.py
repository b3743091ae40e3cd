"""Which values are secrets: corpora of ordinary values and of keys."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hermes_agent.core.secrecy import find_secrets, looks_like_secret_name

ORDINARY = (
    "127.0.0.1", "localhost:6667", "2001:db8::ff00:42:8329", "irc.libera.chat", "smtp.mail.example.org:587",
    "ec2-54-123-45-67.compute-1.amazonaws.com", "hermes-bot", "#room,#other-room", "Alexander", "alexander1984",
    "alexander,katharina,@bot:matrix.org", "agent@example.org", "!OGEhHVWSdvArJzumhm:matrix.org", "-1001234567890",
    "1700000000000000000", "/home/alexander/.hermes/notes", "~/projects/hermes", "https://api.example.org/v1/models",
    "postgres://db.example.org:5432/app", "meta-llama/Llama-3.3-70B-Instruct", "claude-sonnet-4-20250514",
    "anthropic/claude-3.5-sonnet:beta", "qwen2.5-coder-32b-instruct-q4_k_m.gguf",
    "DeepSeek-R1-Distill-Qwen-32B-GGUF:Q4_K_M",
    "America/Argentina/Buenos_Aires", "correct-horse-battery-staple", "2026-11-23T14:00:00+01:00", "en_US.UTF-8",
    "6c09c460-d06a-4109-b08b-c71ea7e6be4e", "You are a helpful assistant.", "application/json; charset=utf-8",
)  # fmt: skip
GENERATED = (
    "9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c", "k9Xw2LmQ8vRt4ZbN7cYd", "Zx3-kQ9_Lm2Vb7Tn4Rw8-Yp1Hd6Jf5Gs0",
    "q8Jx+3mN/5vLk2Zt7Rw9Yb4Hd6Fg1Sc0Pa8Qe3Ui5Oo=",
)  # fmt: skip


@pytest.mark.parametrize("value", ORDINARY)
@pytest.mark.parametrize("name", ["MYCHAT_FRIENDS", "IRC_SERVER", "SOMETHING"])
def test_an_ordinary_value_is_no_secret_however_long_it_is(name: str, value: str) -> None:
    assert list(find_secrets(name, value)) == []
    assert list(find_secrets(name, value, declared=False)) == []


@pytest.mark.parametrize("value", ["cafe:deadbeefdeadbeef", "ada:1234567890", "12345678:abcdef"])
def test_a_user_and_a_password_are_no_network_address(value: str) -> None:
    assert list(find_secrets("BASIC_AUTH", value)) == [value]


@pytest.mark.parametrize("value", GENERATED)
def test_a_generated_value_is_a_secret_under_any_name_that_says_nothing(value: str) -> None:
    assert list(find_secrets("SOMETHING", value)) == [value]


@pytest.mark.parametrize(
    "name",
    ["IRC_SASL_PASSWORD", "MY_TOKEN", "clientSecret", "SSH_PASSPHRASE", "DB_CREDENTIALS", "BASIC_AUTH", "COOKIE",
     "MYAPP_KEY", "OPENAI_API_KEY_2", "privateKey", "SMTP_PASS", "GITHUBTOKEN", "MYSQL_PWD",
     "VAULT_SECRET_ID"],
)  # fmt: skip
def test_a_name_makes_an_ordinary_word_a_secret(name: str) -> None:
    assert list(find_secrets(name, "alexander")) == ["alexander"]
    assert list(find_secrets(name, "alexander", declared=False)) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SSH_AUTH_SOCK", "/tmp/ssh-abc/agent.1"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/etc/google/service-account.json"),
        ("AUTH_MODE", "password-and-code"),
        ("PWD", "/srv/work"),  # every shell exports these two
        ("OLDPWD", "/srv/work"),
        ("TLS_KEY", "/etc/ssl/private/agent.pem"),
        ("TOKENIZERS_PARALLELISM", "sometimes"),
        ("MAX_TOKENS", "100000000"),
        ("PASSWORD_STORE_DIR", "alexanders-passwords"),
        ("KEYBOARD_LAYOUT", "de-nodeadkeys"),
        ("PUBLIC_KEY", "ssh-ed25519"),
    ],
)
def test_what_only_speaks_of_a_secret_is_none(name: str, value: str) -> None:
    assert list(find_secrets(name, value)) == []


@pytest.mark.parametrize(
    ("value", "secrets"),
    [
        ("postgres://me:hunter-two@db.example.org/app", {"hunter-two"}),
        ("https://me:two%20words@example.org", {"two%20words", "two words"}),
        ("https://example.org/feed?access_token=alexander&page=2", {"alexander"}),
        ("https://chat.example.org/hooks/1234/k9Xw2LmQ8vRt4ZbN7cYd", {"k9Xw2LmQ8vRt4ZbN7cYd"}),
    ],
)
def test_of_an_address_the_credentials_alone_are_secret(value: str, secrets: set[str]) -> None:
    assert set(find_secrets("SERVICE_URL", value)) == secrets


def test_the_credentials_of_a_header_are_a_secret_by_themselves() -> None:
    assert list(find_secrets("Authorization", "Bearer alexander-1")) == ["Bearer alexander-1", "alexander-1"]


def test_the_variables_of_bundled_model_providers_are_known_by_their_names(bundled_profiles: list[str]) -> None:
    assert [name for name in bundled_profiles if not looks_like_secret_name(name)] == []


@pytest.fixture
def bundled_profiles() -> list[str]:
    folder = Path(__file__).parents[3] / "plugins" / "model-providers"
    found = {
        n
        for p in folder.glob("*/__init__.py")
        for n in re.findall(r'"([A-Z][A-Z0-9_]+_(?:KEY|TOKEN)\w*)"', p.read_text())
    }
    assert len(found) > 15
    return sorted(found)
