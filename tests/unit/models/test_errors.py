from __future__ import annotations

import logging
import traceback

import pytest

from hermes_agent.contracts.model_client import ModelRequest
from hermes_agent.core.errors import ContextTooLong, ModelError
from hermes_agent.core.messages import Message
from hermes_agent.models import errors
from hermes_agent.models.errors import ErrorReply
from hermes_agent.models.providers import ModelEndpoint, ProviderCatalog
from peers.asking import client_for, failure
from peers.raw import raw_server

KEY = "sk-very-secret-0123456789"


def endpoint(provider: str = "openrouter", key: str = KEY) -> ModelEndpoint:
    known = ProviderCatalog().get(provider)
    assert known is not None
    return ModelEndpoint(known, known.base_url or "http://127.0.0.1:8000/v1", key, known.key_names[0] if key else "")


def kind(status: int | None, message: str, code: str = "") -> str:
    return errors.error_from_reply(endpoint(), "m-1", ErrorReply(message, code, status)).kind


@pytest.mark.parametrize(
    ("status", "code", "message", "expected"),
    [
        # each as its provider words it
        (404, "model_not_found", "The model `gpt-9` does not exist or you do not have access to it.", "unknown_model"),
        (400, "", "gpt-9 is not a valid model ID", "unknown_model"),
        (404, "", "No endpoints found for x/y.", "unknown_model"),
        (404, "", 'model "qwen" not found, try pulling it first', "unknown_model"),
        (404, "NOT_FOUND", "models/gemini-9 is not found for API version v1beta", "unknown_model"),
        (400, "", "Invalid model: mistral-9", "unknown_model"),
        (404, "", "Not Found", "refused"),
        (400, "context_length_exceeded", "This model's maximum context length is 128000 tokens.", "context_too_long"),
        (400, "exceed_context_size_error", "the request exceeds the available context size", "context_too_long"),
        (400, "INVALID_ARGUMENT", "The input token count (1100000) exceeds the maximum", "context_too_long"),
        (413, "", "Please reduce the length of the messages or completion.", "context_too_long"),
        (500, "", "prompt is too long: 210000 tokens > 200000 maximum", "context_too_long"),
        (400, "", "max_tokens is too large: 99999. This model supports at most 16384 completion tokens", "refused"),
        (429, "insufficient_quota", "You exceeded your current quota, please check your plan", "payment"),
        (429, "", "Too many tokens per minute", "rate_limit"),
        (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", "auth"),
        (400, "", "Incorrect API key provided: sk-a***yz", "auth"),
        (401, "", "No auth credentials found", "auth"),
        (403, "", "Your project has no access to this model", "auth"),
        (402, "", "Insufficient credits", "payment"),
        (422, "", "Extra inputs are not permitted", "refused"),
        (529, "overloaded_error", "Overloaded", "overloaded"),
        (None, "rate_limit_exceeded", "slow down", "rate_limit"),
    ],
)
def test_kind_is_read_from_status_code_and_wording(status: int | None, code: str, message: str, expected: str) -> None:
    assert kind(status, message, code) == expected


@pytest.mark.parametrize(
    ("message", "limit"),
    [
        ("This model's maximum context length is 128000 tokens. Your messages resulted in 130000 tokens.", 128000),
        ("prompt is too long: 210000 tokens > 200000 maximum", 200000),
        ("The input token count (1100000) exceeds the maximum number of tokens allowed (1,048,576).", 1048576),
        ("the request (9000 tokens) exceeds the available context size (8192 tokens)", 8192),
        ("Please reduce the length of the messages.", None),
    ],
)
def test_a_conversation_that_does_not_fit_is_an_error_of_its_own_with_the_limit(
    message: str, limit: int | None
) -> None:
    error = errors.error_from_reply(endpoint(), "m-1", ErrorReply(message, status=400))
    assert isinstance(error, ContextTooLong)
    assert (error.kind, error.limit_tokens) == ("context_too_long", limit)


@pytest.mark.parametrize(
    ("message", "seconds", "words"),
    [
        ("Please try again in 20s.", 20.0, "wait 20 seconds"),
        ("Please retry in 37.5s.", 37.5, "wait 38 seconds"),
        ("Please try again in 6m0s", 360.0, "wait 6 minutes"),
        ("try again in 250ms", 0.25, "wait 1 second"),
        ("You are too fast", None, "it does not say how long to wait"),
    ],
)
def test_wait_is_read_from_the_words_when_no_header_says_it(message: str, seconds: float | None, words: str) -> None:
    error = errors.error_from_reply(endpoint(), "m-1", ErrorReply(message, status=429))
    assert error.retry_after_s == seconds
    assert error.message == f"OpenRouter (openrouter.ai) limits how often model 'm-1' may be asked: {words}."


def test_the_seven_sentences() -> None:
    own = endpoint("custom", key="")
    found: list[ModelError] = [
        errors.missing_key(endpoint(key=""), "m-1"),
        errors.error_from_reply(endpoint(), "m-1", ErrorReply("bad", status=401)),
        errors.error_from_reply(endpoint(), "m-1", ErrorReply("no such model", status=404)),
        errors.error_from_reply(endpoint(), "m-1", ErrorReply("slow down", status=429, retry_after_s=12)),
        errors.error_from_reply(endpoint(), "m-1", ErrorReply("", "context_length_exceeded", 400)),
        errors.unreachable(own, "m-1", "the connection was refused"),
        errors.cut_off(own, "m-1", "the stream ended without a finish reason"),
    ]
    assert [str(error) for error in found] == [
        "There is no key for OpenRouter (openrouter.ai), which model 'm-1' needs.\n"
        "Put OPENROUTER_API_KEY=… into the file .env of the home, into the environment, or give a systemd credential"
        " of that name; or choose another provider with `hermes config set model.provider NAME`.",
        "OpenRouter (openrouter.ai) did not accept the key for model 'm-1'.\n"
        "Check OPENROUTER_API_KEY: it may be mistyped, expired, or of another provider.",
        "OpenRouter (openrouter.ai) has no model 'm-1'.\n"
        "It says: no such model. Choose one of https://openrouter.ai/api/v1/models with"
        " `hermes config set model.default NAME`.",
        "OpenRouter (openrouter.ai) limits how often model 'm-1' may be asked: wait 12 seconds.\n"
        "It says: slow down. Ask again after that, or choose another model or provider.",
        "The conversation is too long for model 'm-1' of OpenRouter (openrouter.ai).\n"
        "Start a new session (`/new`), or choose a model with a longer context.",
        "The server (127.0.0.1:8000) cannot be reached for model 'm-1': the connection was refused.\n"
        "Is the server running at http://127.0.0.1:8000/v1? `model.base_url` says where it is.",
        "The answer of model 'm-1' from the server (127.0.0.1:8000) was cut off in the middle:"
        " the stream ended without a finish reason.\n"
        "What came before is not the whole answer. Ask again.",
    ]
    assert [error.kind for error in found] == [
        "no_key", "auth", "unknown_model", "rate_limit", "context_too_long", "unreachable", "cut_off",
    ]  # fmt: skip
    assert {error.exit_status for error in found} == {1}


def test_server_that_is_not_there_is_named_with_the_reason() -> None:
    refused = failure("http://127.0.0.1:9/v1", provider="custom")
    assert refused.kind == "unreachable"
    assert refused.message == (
        "The server (127.0.0.1:9) cannot be reached for model 'm-1': the connection was refused."
    )
    nowhere = failure("http://no-such-host.invalid/v1", provider="custom")
    assert nowhere.message.endswith(": the name does not resolve.")


def test_tls_that_is_none_is_said(faulty) -> None:
    error = failure(faulty.base_url.replace("http:", "https:"), provider="custom")
    assert (error.kind, "TLS failed" in error.message) == ("unreachable", True), error.message


@pytest.mark.parametrize("key", ["sk-two lines-0123456789\nsecond", "sk-0123456789-ünicode", "sk-0123456789 space"])
def test_key_that_no_header_can_bear_is_not_sent_and_not_shown(key: str) -> None:
    error = failure("http://127.0.0.1:9/v1", key=key)
    assert error.kind == "auth"
    assert "was not sent: its character" in error.message
    assert "0123456789" not in str(error)


def test_no_key_is_noticed_before_anything_is_sent() -> None:
    assert failure("http://127.0.0.1:9/v1", key="").kind == "no_key"


@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request", "401 No", "404 No", "429 No", "500 No"])
@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream", "text/html"])
async def test_key_that_a_server_echoes_is_in_no_error_and_no_log(
    status: str, content_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    body = f'data: {{"error": {{"message": "your key {KEY} is odd", "code": "{KEY}"}}}}\n\n'.encode()

    async def run() -> ModelError:
        async with raw_server(body, status=status, content_type=content_type) as raw:
            client = client_for(raw.base_url, key=KEY)
            try:
                async for _ in client.stream(ModelRequest("m-1", [Message("user", "x")])):
                    pass
            except ModelError as exc:
                return exc
            finally:
                await client.aclose()
        raise AssertionError("it answered")

    error = await run()
    shown = "".join([str(error), repr(error), *traceback.format_exception(error)])
    assert KEY not in shown
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("hermes_agent")]
    assert KEY not in "".join(ours)


def test_address_with_a_password_is_shown_without_it() -> None:
    error = failure("http://me:hunter2secret@127.0.0.1:9/v1?token=abcdefgh", provider="custom")
    assert "hunter2" not in str(error) and "abcdefgh" not in str(error)
    assert "http://127.0.0.1:9/v1" in error.hint
