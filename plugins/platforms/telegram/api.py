"""Telegram's Bot API: calls and their errors. Source: core.telegram.org/bots/api."""

import json
import logging
import mimetypes
from pathlib import Path

from hermes_agent.adapters.events import SendResult

CALL_S = 60.0


class TelegramError(Exception):
    """Error of Telegram: code, text, and parameters for a retry."""

    def __init__(self, code, text, parameters):
        super().__init__(f"{code} {text}")
        self.code, self.text = code, text
        self.retry_after = parameters.get("retry_after")
        self.moved_to = parameters.get("migrate_to_chat_id")


class TelegramUnreachable(Exception):
    """Error: there is no answer. `arrived`: False if the request was not sent, None if that is unknown."""

    def __init__(self, text, arrived):
        super().__init__(text)
        self.arrived = arrived


class TelegramApi:
    """Calls of one bot."""

    def __init__(self, base_url, token, proxy=""):
        import httpx  # 200 ms, needed for Telegram only

        self._httpx, self._token = httpx, token
        self._address = f"{base_url.rstrip('/')}/bot{token}"
        self._files = f"{base_url.rstrip('/')}/file/bot{token}"
        self._client = httpx.AsyncClient(timeout=CALL_S, proxy=proxy or None)
        logging.getLogger("httpx").addFilter(self._without_token)

    async def call(self, method, *, files=None, wait_s=0, **params):
        """Return the `result` of a call. `files`: paths by parameter.

        Raises TelegramError, TelegramUnreachable.
        """
        values = {name: value for name, value in params.items() if value is not None}
        if files:
            plain = {n: v if isinstance(v, str) else json.dumps(v) for n, v in values.items()}
            sent = {"data": plain, "files": {name: _file(path) for name, path in files.items()}}
        else:
            sent = {"json": values}
        answer = await self._request("POST", f"{self._address}/{method}", timeout=CALL_S + wait_s, **sent)
        try:
            body = answer.json()
        except ValueError:
            body = {}
        if not isinstance(body, dict) or not body.get("ok"):
            if answer.status_code >= 500:
                raise TelegramUnreachable(f"Telegram answered {answer.status_code}", None)
            error = body if isinstance(body, dict) else {}
            text = error.get("description", "not an answer of Telegram")
            raise TelegramError(error.get("error_code", answer.status_code), text, error.get("parameters") or {})
        return body["result"]

    async def file(self, file_id):
        """Return name and bytes of a file. Raises TelegramError (above 20 MB), TelegramUnreachable."""
        found = await self.call("getFile", file_id=file_id)
        answer = await self._request("GET", f"{self._files}/{found['file_path']}")
        if answer.status_code != 200:
            raise TelegramError(answer.status_code, "cannot fetch the file", {})
        return Path(found["file_path"]).name, answer.content

    async def _request(self, method, address, **kwargs):
        httpx = self._httpx
        try:
            return await self._client.request(method, address, **kwargs)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError) as exc:
            raise TelegramUnreachable(f"no connection: {type(exc).__name__}", False) from None
        except httpx.HTTPError as exc:  # its text may contain the address with the token
            raise TelegramUnreachable(f"timed out: {type(exc).__name__}", None) from None

    async def close(self):
        logging.getLogger("httpx").removeFilter(self._without_token)
        await self._client.aclose()

    def _without_token(self, record):
        """Remove the token from log records of httpx, which contain addresses."""
        record.msg, record.args = record.getMessage().replace(self._token, "***"), ()
        return True


def as_result(exc):
    """Return a failure as a `SendResult`."""
    if isinstance(exc, TelegramUnreachable):
        if exc.arrived is False:
            return SendResult(False, error=str(exc), retryable=True, error_kind="transient")
        return SendResult(False, error="timed out: it may have arrived", error_kind="unknown")
    text = exc.text.lower()
    if exc.code == 429:
        return SendResult(False, error=str(exc), error_kind="rate_limited", retry_after=exc.retry_after or 1)
    if "too long" in text or "too big" in text or exc.code == 413:
        kind = "too_long"
    elif "can't parse" in text:
        kind = "bad_format"
    elif "not found" in text or exc.code == 404:
        kind = "not_found"
    elif exc.code in (401, 403) or "not enough rights" in text or "kicked" in text:
        kind = "forbidden"
    else:
        kind = "unknown"
    return SendResult(False, error=str(exc), error_kind=kind)


def _file(path):
    mime = mimetypes.guess_type(str(path))[0] or "application/octet-stream"
    return Path(path).name, Path(path).read_bytes(), mime
