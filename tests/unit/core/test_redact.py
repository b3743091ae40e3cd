from __future__ import annotations

import json
import subprocess
import sys
import threading
import tracemalloc
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_agent.core import secret_forms
from hermes_agent.core.redaction import Redactor
from hermes_agent.core.secrecy import looks_like_secret_name


@pytest.mark.parametrize(
    "secret",
    [
        "sk-abcdefghijklmnop0123",
        "sk-ant-" + "a1b2c3d4" * 3,
        "sk-or-v1-abcdefghijklmnop",
        "sk-proj-abcdefghijklmn0p",
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
        "AccountKey=" + "a1B2c3D4" * 10 + "a1B2c3==",
        "AccountKey=" + "a1B2c3D4" * 5 + "a1B=",
        "glpat-" + "a1B2c3D4" * 8 + ".01.a1b2c3d4e",
        "tvly-dev-a1B2c3-" + "D4e5F6g7" * 4,
        "xoxr-" + "a1b2c3d4" * 4,
        "sk_live_" + "a1B2c3D4" * 2,
        "sk_live_" + "a1B2c3D4" * 12,
        "SG." + "a1B2c3D4e5f" * 2 + "." + "a1B2c3D4" * 5 + "abc",
        "sq0csp-" + "a1B2c3D4" * 5 + "abc",
        "pypi-AgEIcHlwaS5vcmc" + "a1B2c3D4" * 12,
        "glptt-" + "a1b2c3d4" * 5,
        "https://hooks.slack.com/services/T0A1B2C3D/B0A1B2C3D/a1B2c3D4e5F6",
        "xapp-1-A0A1B2C3D-1234567890-" + "a1b2c3d4" * 4,
        "a1b2c3d4" * 4 + "-us12",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n" + "lQVYBGVx+k/A" * 9 + "\n-----END PGP PRIVATE KEY BLOCK-----",
        "-----BEGIN RSA PRIVATE KEY-----\n" + "\n".join(["MIIEowIBAAKCAQEA" * 4] * 3),
    ],
)
def test_what_looks_like_a_key_is_masked(secret):
    assert Redactor()(f"key={secret}, next") == "key=[redacted], next"


@pytest.mark.parametrize("secret", ["a" * 12, "]" * 9])
def test_a_secret_of_one_character_is_not_found_at_each_place_of_a_run(secret: str) -> None:
    redactor = Redactor()
    redactor.learn([secret, "other-secret-1"])
    assert redactor(f"x {secret}{secret} y") == "x [redacted] y"  # with no other secret beside it
    tracemalloc.start()
    try:
        text = f"x {secret[0] * 300_000} other-secret-1 {secret[:7]}"
        assert redactor(text) == f"x [redacted] [redacted] {secret[:7]}"
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_a_password_in_an_address_is_masked_and_the_host_stays():
    assert Redactor()("clone https://me:s3cret-word@example.org/a.git") == "clone https://[redacted]@example.org/a.git"
    for text in ("http://example.org:8080/a@b", "ssh://git@example.org/a", "see https://a.example/x: me@b.example"):
        assert Redactor()(text) == text


def test_a_bearer_token_is_masked_and_the_word_stays():
    assert Redactor()("Authorization: Bearer abcdef.0123456789/xyz==") == "Authorization: Bearer [redacted]"


def test_the_secret_beside_its_name_is_masked_and_the_name_stays():
    key = "a1B2c3D4e5" * 4
    for form in ("aws_secret_access_key = {}", "AWS_SECRET_ACCESS_KEY={}", '"SecretAccessKey": "{}"'):
        assert Redactor()(form.format(key)) == form.format("[redacted]")


def test_a_secret_that_is_known_in_part_is_masked_whole():
    redact = Redactor()
    redact.learn(["a1B2c3D4a1B2"])

    assert redact("ghp_" + "a1B2c3D4" * 5 + ".") == "[redacted]."


@pytest.mark.parametrize(
    "text",
    [
        "sk-short",
        "sk-folding-cube-container",
        "xai-grok-some-long-model-name-for-all",
        "hf_tokenizer_name_or_path_of_the_model",
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


@pytest.mark.parametrize("shown", ["a1b2c3d4", "4d3c2b1a"])
def test_a_text_that_is_the_shortest_secret_is_masked(shown):
    redactor = Redactor()
    redactor.learn(["a1b2c3d4"])
    assert redactor.mask_known(shown) == redactor(shown) == "[redacted]"


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


KEY_LINES = ["MIIEowIBAAKCAQEA" * 4] * 3


@pytest.mark.parametrize("before", ["", "-", "+", "> ", "12|", "my-own-key.pem:12:"])
@pytest.mark.parametrize("fields", [[], ["Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-128-CBC,0123456789ABCDEF", ""]])
def test_a_private_key_is_masked_as_diffs_quotes_and_listings_show_it_and_when_it_has_a_head(before, fields):
    lines = ["-----BEGIN RSA PRIVATE KEY-----", *fields, *KEY_LINES, "-----END RSA PRIVATE KEY-----"]
    for newline in ("\n", "\\n"):
        shown = Redactor()(newline.join(["first", *(before + line for line in lines), "last"]))
        assert "MIIE" not in shown
        assert shown.startswith("first" + newline) and shown.endswith(newline + "last")


@pytest.mark.parametrize(
    "secret", ["sk-ant-api03-" + "a1B2c3D4" * 5, "hf_" + "a1B2c3D4" * 5, "gsk_" + "a1B2c3D4" * 6, "xai-" + "aB1c" * 20]
)
def test_a_key_that_begins_a_line_is_masked_as_json_writes_it(secret):
    assert Redactor()(json.dumps(f"keys:\n{secret}\tmine")) == r'"keys:\n[redacted]\tmine"'


def test_the_key_in_the_name_of_a_thing_is_masked():
    assert Redactor()("backup-sk-proj-" + "a1B2c3D4" * 5) == "backup-[redacted]"
    assert Redactor()("https://host/bot123456789:" + "a1B2c3D" * 5 + "?a=b") == "https://host/bot[redacted]?a=b"


def test_a_value_that_cannot_be_encoded_is_masked_and_hides_no_other_one():
    redact = Redactor()
    redact.learn(["bad-\udce4-value", *(f"a-known-value-{n:03}" for n in range(50))])

    assert redact("bad-\udce4-value") == "[redacted]"
    assert redact(" ".join(f"a-known-value-{n:03}" for n in range(50))) == " ".join(["[redacted]"] * 50)


def test_a_secret_beside_what_cannot_be_encoded_is_masked():
    redact = Redactor()
    redact.learn(["a-known-value"])

    assert redact("\ud800ü a-known-value \udfff") == "\ud800ü [redacted] \udfff"


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


def test_ordinary_text_is_shown_as_it_is(harmless: dict[str, str]) -> None:
    redact = Redactor()

    assert [name for name, text in harmless.items() if redact(text) != text] == []


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Basic {}", "dXNlcjpwYXNz"),
        ('{{\\"Authorization\\": \\"Basic {}\\"}}', "dXNlcjpwYXNzd29yZA=="),
        ("Proxy-Authorization: Basic {}", "dXNlcjpodW50ZXIy"),
        ("'authorization': 'Bearer {}'", "abc123def456"),
        ("AUTHORIZATION: BEARER {}", "abc123def456"),
        ("Cookie: {}", "theme=dark; session=8f7a6b5c4d3e"),
        ("Set-Cookie: {}; HttpOnly", "sid=AbC123xyz789; Path=/"),
        ('"Cookie": "{}"', "sid=AbC123xyz789"),
        ("https://a.example/cb?access_token={}&x=1", "abc123def456"),
        ("refresh_token={}&grant_type=refresh_token", "1//0abcdEFGH12"),
        ("client_id=me&client_secret={}", "GOCSPX-abc12345"),
        ('{{"id_token": "{}"}}', "abc-def123456"),
        ('"accessToken": "{}"', "a1b2c3d4e5f6"),
        ("postgres://me:{}@db/x", "s3cret-word"),
        ("redis://:{}@db", "s3cretword"),
        ("password={}", "hunter22"),
        ("db_password = '{}'", "tr0ub4dor&3"),
        ('"password": "{}"', "correct horse 1!"),
        ('{{\\"password\\": \\"{}\\"}}', "correct horse 1!"),
        ("PGPASSWORD={} psql -h db", "hunter22"),
        ("passwd: {}", "hunter22"),
        ("mysql --password {} db", "hunter22"),
        ("mysql --password={} db", "hunter22"),
        ("login?user=me&password={}&next=/", "hunter22"),
        ("AWS_SECRET_ACCESS_KEY={}", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYa1b2c3dKEY"),
        ("aws.secretKey={}", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYa1b2c3dKEY"),
        ("Secret access key: {}", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYa1b2c3dKEY"),
        ("AKIAABCDEFGHIJKLMNOP,{}", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYa1b2c3dKEY"),
    ],
)
def test_a_secret_that_nobody_learnt_is_masked_beside_its_name(text: str, secret: str) -> None:
    shown = Redactor()(text.format(secret))

    assert secret not in shown and "[redacted]" in shown
    assert shown.split("[redacted]")[0].strip("'\"\\{ ")[:5] in text  # its name stays


MARKS = [
    *secret_forms.MARKS,
    "-----BEGIN PRIVATE KEY-----",
    "-us1",
    "aws key",
    "eyJ.",
    "0",
    "a",
    "-",
    ".",
    "://a:b",
    "password=",
    'ookie"',
    "=a1",
    "; ",
    "\n",
]


@settings(max_examples=60, deadline=timedelta(seconds=10))
@given(pieces=st.lists(st.sampled_from(MARKS), min_size=1, max_size=4), around=st.text(max_size=20))
def test_no_text_keeps_the_filter_busy(pieces, around):
    text = around + "".join(pieces) * (50_000 // sum(map(len, pieces))) + around

    Redactor()(text)  # the limit of each example (`deadline`, made wide for a busy machine) is what may fail


class CollectingSecret(str):
    """A secret at which the garbage collector runs a finalizer, while the secrets are made ready."""

    def __new__(cls, value, finalizer):
        made = super().__new__(cls, value)
        made.finalizer = finalizer
        return made

    def splitlines(self, keepends=False):
        self.finalizer()
        return super().splitlines(keepends)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("mask", ["__call__", "mask_known", "find_certain_end"])
def test_what_logs_while_secrets_are_made_ready_does_not_wait_for_itself(mask):
    """The garbage collector may run anywhere, with a `__del__` that logs; each log line is masked."""
    filter_of_logs, shown = Redactor(), []

    def collect():
        if not shown:
            shown.append("")
            shown[0] = filter_of_logs("unclosed: a-known-value")

    filter_of_logs.learn([CollectingSecret("a-known-value", collect)])
    working = threading.Thread(target=getattr(filter_of_logs, mask), args=("a-known-value",), daemon=True)
    working.start()
    working.join(10)
    assert not working.is_alive()
    assert shown == ["unclosed: [redacted]"]


@pytest.mark.timeout(30)
def test_two_threads_that_log_and_make_secrets_ready_do_not_wait_for_each_other():
    """One holds the lock of a log file and masks its line, the other makes secrets ready, and its `__del__` logs."""
    filter_of_logs, file, begun = Redactor(), threading.RLock(), threading.Event()

    def collect():
        if threading.current_thread().name == "makes":
            begun.set()
            with file:
                pass

    def logs():
        with file:
            begun.wait(10)
            filter_of_logs("a-known-value")

    filter_of_logs.learn([CollectingSecret("a-known-value", collect)])
    threads = [
        threading.Thread(target=logs, daemon=True),
        threading.Thread(target=filter_of_logs, args=("a-known-value",), name="makes", daemon=True),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)


def test_a_secret_that_is_learned_while_others_are_made_ready_is_masked():
    filter_of_logs = Redactor()
    filter_of_logs.learn([CollectingSecret("a-known-value", lambda: filter_of_logs.learn(["another-known-value"]))])
    filter_of_logs("text")
    assert filter_of_logs("another-known-value") == "[redacted]"


def test_the_library_is_loaded_at_the_first_mark_of_a_key_and_not_before():
    code = (
        "import sys; from hermes_agent.core.redaction import redactor; redactor.learn(['a-known-value']);"
        "redactor('GET http://127.0.0.1:8080/v1 a-known-value sk-0123456789abcdef MSG.part 4A:AA:BB');"
        "print('detect_secrets' in sys.modules);"
        "redactor('AKIA'); print('detect_secrets' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.split() == ["False", "True"]
