"""Client-server API of a homeserver: calls and their errors. Source: spec.matrix.org."""

from urllib.parse import quote

from hermes_agent.adapters.events import SendResult

CALL_S = 60.0
CLIENT = "/_matrix/client/v3"


class MatrixError(Exception):
    """Error of the homeserver: HTTP status, Matrix's code, and the delay before a retry."""

    def __init__(self, status, body):
        self.status = status
        self.code = str(body.get("errcode") or "M_UNKNOWN")
        self.retry_after = (body.get("retry_after_ms") or 0) / 1000 or None
        super().__init__(f"{self.code}: {body.get('error') or status}")


class MatrixUnreachable(Exception):
    """Error: there is no answer. `arrived`: False if the request was not sent, None if that is unknown."""

    def __init__(self, text, arrived):
        super().__init__(text)
        self.arrived = arrived


class MatrixApi:
    """Calls of one account."""

    def __init__(self, homeserver, token=""):
        import httpx  # 200 ms, needed for Matrix only

        self._httpx, self.token = httpx, token
        self._client = httpx.AsyncClient(base_url=homeserver.rstrip("/"), timeout=CALL_S)

    async def call(self, method, *path, body=None, wait_s=0.0, **query):
        """Return the JSON of an answer. `path`: unquoted segments. Raises MatrixError, MatrixUnreachable."""
        address = CLIENT + "".join(f"/{quote(piece, safe='')}" for piece in path)
        kwargs = {} if body is None else {"json": body}
        answer = await self.ask(method, address, timeout=CALL_S + wait_s, params=query or None, **kwargs)
        return answer.json()

    async def upload(self, data, name, mime):
        """Store a file on the homeserver and return its address (`mxc://…`)."""
        query, headers = {"filename": name}, {"content-type": mime}
        answer = await self.ask("POST", "/_matrix/media/v3/upload", params=query, content=data, headers=headers)
        return answer.json()["content_uri"]

    async def download(self, address, limit):
        """Return the bytes of a file. Raises MatrixError, MatrixUnreachable; ValueError above `limit` bytes."""
        server, _, media = address.removeprefix("mxc://").partition("/")
        path = f"/_matrix/client/v1/media/download/{quote(server, safe='')}/{quote(media, safe='')}"
        httpx, found = self._httpx, b""
        try:
            async with self._client.stream("GET", path, headers=self._headers()) as answer:
                if answer.status_code != 200:
                    raise MatrixError(answer.status_code, {})
                async for piece in answer.aiter_bytes():
                    found += piece
                    if len(found) > limit:
                        raise ValueError(f"it is larger than {limit} bytes")
        except httpx.HTTPError as exc:
            raise MatrixUnreachable(f"timed out: {type(exc).__name__}", None) from exc
        return found

    async def ask(self, method, address, **kwargs):
        httpx = self._httpx
        headers = {**self._headers(), **kwargs.pop("headers", {})}
        try:
            answer = await self._client.request(method, address, headers=headers, **kwargs)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError) as exc:
            raise MatrixUnreachable(f"no connection: {exc}", False) from exc
        except httpx.HTTPError as exc:
            raise MatrixUnreachable(f"timed out: {type(exc).__name__}", None) from exc
        if answer.status_code == 200:
            return answer
        try:
            body = answer.json()
        except ValueError:
            body = {}
        if answer.status_code >= 500 and "errcode" not in body:
            raise MatrixUnreachable(f"timed out: the homeserver answered {answer.status_code}", None)
        raise MatrixError(answer.status_code, body if isinstance(body, dict) else {})

    def _headers(self):
        return {"authorization": f"Bearer {self.token}"} if self.token else {}

    async def close(self):
        await self._client.aclose()


def as_result(exc):
    """Return a failure as a `SendResult`. A retry is safe: messages have transaction ids."""
    if isinstance(exc, MatrixUnreachable):
        return SendResult(False, error=str(exc), retryable=True, error_kind="transient")
    kinds = {"M_FORBIDDEN": "forbidden", "M_NOT_FOUND": "not_found", "M_TOO_LARGE": "too_long"}
    kind = "rate_limited" if exc.status == 429 else kinds.get(exc.code, "unknown")
    return SendResult(False, error=str(exc), error_kind=kind, retry_after=exc.retry_after)
