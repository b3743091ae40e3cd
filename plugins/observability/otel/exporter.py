"""Spans on their way to a collector: OTLP over HTTP, as JSON. A turn's spans are one request."""

import json
import logging
import threading
import urllib.request

__all__ = ["Exporter"]

logger = logging.getLogger(__name__)

TIMEOUT_S = 10
WAITING = 2048
"""Spans that wait for a collector that does not answer; the oldest are dropped."""


class Exporter:
    """Args: `address`: of `/v1/traces`; `headers`: sent along."""

    def __init__(self, address, headers, service):
        self._address, self._headers, self._service = address, headers, service
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._waiting = []
        self._reached = True

    def add(self, span):
        """Keep a span until `flush`."""
        with self._lock:
            self._waiting = [*self._waiting[-(WAITING - 1) :], span]

    def flush(self):
        """Send what waits; what cannot be sent waits on, and is told once."""
        with self._sending:
            with self._lock:
                spans, self._waiting = self._waiting, []
            if not spans:
                return
            try:
                self._post(spans)
            except (OSError, ValueError) as exc:
                if self._reached:
                    logger.warning("the collector at %s takes no spans: %s", self._address, exc)
                self._reached = False
                with self._lock:
                    self._waiting = [*spans, *self._waiting][-WAITING:]
            else:
                self._reached = True

    def _post(self, spans):
        resource = {"attributes": [{"key": "service.name", "value": {"stringValue": self._service}}]}
        scope = [{"scope": {"name": "hermes-agent"}, "spans": spans}]
        body = json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": scope}]}).encode()
        headers = {**self._headers, "Content-Type": "application/json"}
        request = urllib.request.Request(self._address, body, headers)
        with urllib.request.build_opener(_Straight).open(request, timeout=TIMEOUT_S) as answer:
            answer.read()


class _Straight(urllib.request.HTTPRedirectHandler):
    """Follows nobody elsewhere: the headers are for the collector alone."""

    def redirect_request(self, *args):
        return None
