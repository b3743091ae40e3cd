"""File uploads to the server. Source: XEP-0363."""

import mimetypes
import ssl

from slixmpp.exceptions import IqError, IqTimeout

from . import stanzas

UPLOAD_S = 300.0
ANSWER_S = 30.0


class UploadFailed(Exception):
    """Error: the server rejected the file. `retryable`: whether it may accept it later."""

    def __init__(self, text, *, retryable=False):
        super().__init__(text)
        self.retryable = retryable


class Uploads:
    """The upload service of an account, discovered once."""

    def __init__(self, stream):
        self._stream, self._service = stream, None

    async def put(self, path, name=None):
        """Upload a file and return its address. Raises OSError, UploadFailed."""
        import httpx  # 200 ms, needed for files only

        data, name = path.read_bytes(), name or path.name
        mime = mimetypes.guess_type(name)[0] or "application/octet-stream"
        where, headers, address = await self._slot(name, len(data), mime)
        ca_file = self._stream.settings.ca_file
        verify = ssl.create_default_context(cafile=ca_file) if ca_file else True
        try:
            async with httpx.AsyncClient(timeout=UPLOAD_S, verify=verify) as client:
                answer = await client.put(where, content=data, headers={"content-type": mime, **headers})
        except httpx.HTTPError as exc:
            raise UploadFailed(f"upload failed: {type(exc).__name__}", retryable=True) from exc
        if answer.status_code not in (200, 201):
            raise UploadFailed(f"upload rejected: {answer.status_code}", retryable=answer.status_code >= 500)
        return address

    async def _slot(self, name, size, mime):
        client = self._stream.client
        iq = client.make_iq_get(ito=await self._find_service())
        stanzas.add(iq.xml, stanzas.UPLOAD, "request", filename=name, size=size, **{"content-type": mime})
        try:
            slot = stanzas.find((await iq.send(timeout=ANSWER_S)).xml, stanzas.UPLOAD, "slot")
        except IqTimeout:
            raise UploadFailed("no answer to the upload request", retryable=True) from None
        except IqError as exc:
            raise UploadFailed(f"upload request rejected: {exc.condition} {exc.text}".strip()) from None
        put, get = (stanzas.find(slot, stanzas.UPLOAD, kind) for kind in ("put", "get"))
        allowed = ("authorization", "cookie", "expires")
        headers = {item.get("name"): item.text for item in put if (item.get("name") or "").lower() in allowed}
        return put.get("url"), headers, get.get("url")

    async def _find_service(self):
        if self._service is None:
            host = self._stream.client.boundjid.host
            try:
                items = await self._stream.client.plugin["xep_0030"].get_items(jid=host, timeout=ANSWER_S)
                found = [host, *(item[0] for item in items["disco_items"]["items"])]
            except (IqError, IqTimeout):
                found = [host]
            for jid in found:
                if stanzas.UPLOAD in (await self._stream.about(jid))[1]:
                    self._service = jid
                    return jid
            raise UploadFailed(f"{host} has no upload service")
        return self._service
