"""Spans on their way to a collector: OTLP over HTTP, as JSON. No turn waits for it."""

import asyncio
import json
import logging
import threading

__all__ = ["Exporter"]

logger = logging.getLogger(__name__)

TIMEOUT_S = 10
WAITING = 2048
"""Spans that wait for a collector that does not answer; beyond it the oldest are dropped, and counted."""
LONGEST_PAUSE_S = 60.0


class Exporter:
    """Args: `address`: of `/v1/traces`; `headers`: sent along."""

    def __init__(self, address, headers, service):
        self._address, self._headers, self._service = address, headers, service
        self._lock = threading.Lock()  # hooks come from several workers
        self._waiting, self._dropped = [], 0
        self._sending = None

    def add(self, span):
        """Keep a span until it is sent."""
        self._keep([span])

    def _keep(self, spans, *, older=False):
        with self._lock:
            waiting = [*spans, *self._waiting] if older else [*self._waiting, *spans]
            self._dropped += max(0, len(waiting) - WAITING)
            self._waiting = waiting[-WAITING:]

    def _take(self):
        with self._lock:
            spans, self._waiting = self._waiting, []
        return spans

    def send(self):
        """Start a task of the running loop that sends the queued spans."""
        if self._sending is None or self._sending.done() or not self._sending.get_loop().is_running():
            self._sending = asyncio.create_task(self._send_all(), name="spans")

    async def sent(self, timeout_s):
        """Wait until nothing waits."""
        if self._sending is not None:
            await asyncio.wait((self._sending,), timeout=timeout_s)

    async def _send_all(self):
        """Send until nothing waits. A collector that fails is left alone, twice as long each time."""
        import httpx  # slow to import, and only a turn's end needs it

        failures = 0
        while spans := self._take():
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await self._post(httpx, spans)
            except (httpx.HTTPError, httpx.InvalidURL, OSError, TimeoutError) as exc:
                self._keep(spans, older=True)
                failures += 1
                if failures == 1:
                    logger.warning("the collector at %s takes no spans: %s", self._address, exc or type(exc).__name__)
                await asyncio.sleep(min(2.0 ** (failures - 1), LONGEST_PAUSE_S))
                continue
            with self._lock:
                dropped, self._dropped = self._dropped, 0
            if failures or dropped:
                logger.warning("the collector takes spans again; %d were dropped meanwhile", dropped)
            failures = 0
        self._sending = None

    async def _post(self, httpx, spans):
        resource = {"attributes": [{"key": "service.name", "value": {"stringValue": self._service}}]}
        scope = [{"scope": {"name": "hermes-agent"}, "spans": spans}]
        # ASCII: an id from a model's server may have half a surrogate pair
        body = json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": scope}]}).encode("ascii")
        headers = {**self._headers, "Content-Type": "application/json"}
        async with httpx.AsyncClient(
            timeout=TIMEOUT_S
        ) as client:  # it follows no redirection, which would take the headers along
            (await client.post(self._address, content=body, headers=headers)).raise_for_status()
