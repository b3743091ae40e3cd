"""The bundled plugin `otel`: a collector gets one trace of each turn, with its model calls and tools, and no words."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from hermes_agent.testing import call, plugin_host

ON = {"plugins": {"enabled": ["observability/otel", "under-test"]}}
SECRET = "sk-very-secret-0123456789abcdef"
SCHEMA = {
    "name": "look",
    "description": "x",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
}
VALUES = {"stringValue": str, "intValue": str, "arrayValue": dict}


class Collector:
    """Takes OTLP's JSON, and refuses what is none."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.headers: list[Any] = []
        self.bodies: list[str] = []
        self.faults: list[str] = []
        self.away = False
        self.elsewhere = False
        self.redirected = threading.Event()
        self.followed: list[Any] = []
        self.changed = threading.Condition()

    def take(self, path: str, headers: Any, body: str) -> int:
        if self.away:
            return 503
        if self.elsewhere:
            self.redirected.set()
            return 302
        try:
            assert path == "/v1/traces"
            for resource in json.loads(body)["resourceSpans"]:
                names = {one["key"]: one["value"]["stringValue"] for one in resource["resource"]["attributes"]}
                assert names["service.name"] == "hermes-agent"
                for scope in resource["scopeSpans"]:
                    self.spans += [checked(span) for span in scope["spans"]]
        except (AssertionError, KeyError, ValueError) as exc:
            self.faults.append(repr(exc))
            return 400
        self.headers.append(headers)
        self.bodies.append(body)
        with self.changed:
            self.changed.notify_all()
        return 200

    def wait(self, count: int) -> list[dict[str, Any]]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.spans) >= count, 60), (self.spans, self.faults)
        return self.spans


def checked(span: dict[str, Any]) -> dict[str, Any]:
    assert re.fullmatch(r"[0-9a-f]{32}", span["traceId"])
    assert re.fullmatch(r"[0-9a-f]{16}", span["spanId"])
    assert re.fullmatch(r"[0-9a-f]{16}", span.get("parentSpanId", "0" * 16))
    assert 0 < int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
    assert span["kind"] in (1, 3)
    for one in span["attributes"]:
        ((kind, value),) = one["value"].items()
        assert isinstance(value, VALUES[kind])
    return span


@pytest.fixture
def collector() -> Iterator[tuple[Collector, str]]:
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self.send_response(found.take(self.path, self.headers, body))
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def do_GET(self) -> None:
            found.followed.append(self.headers)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield found, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def tool(ctx: Any) -> None:
    ctx.register_tool("look", "look", SCHEMA, lambda args, **kwargs: json.dumps({"error": f"no {args['at']}"}))


def env(address: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20b,y=2"}


def test_a_turn_is_one_trace_with_its_model_calls_and_tools_and_none_of_their_words(
    collector: tuple[Collector, str],
) -> None:
    found, address = collector
    answers = [call("look", at=SECRET), f"I saw {SECRET}"]
    with plugin_host(tool, model=answers, env=env(address), config=ON) as host:
        host.ask(f"What is {SECRET}?")
        spans = found.wait(4)
    assert found.faults == []
    assert [span["name"].split()[0] for span in spans] == ["chat", "execute_tool", "chat", "invoke_agent"]
    root = spans[-1]
    assert len({span["traceId"] for span in spans}) == 1
    assert {span.get("parentSpanId") for span in spans[:-1]} == {root["spanId"]}
    assert len({span["spanId"] for span in spans}) == 4
    said = {one["key"]: one["value"] for span in spans for one in span["attributes"]}
    assert said["gen_ai.tool.name"] == {"stringValue": "look"}
    assert said["gen_ai.operation.name"] == {"stringValue": "invoke_agent"}
    assert int(said["gen_ai.usage.input_tokens"]["intValue"]) > 0
    assert spans[1]["status"]["code"] == 2
    assert SECRET not in "".join(found.bodies)
    assert (found.headers[0]["x-key"], found.headers[0]["y"]) == ("a b", "2")


def test_an_id_that_cannot_be_encoded_keeps_no_span_back(collector: tuple[Collector, str]) -> None:
    found, address = collector
    with plugin_host(tool, model=[call("look", at="x"), "one", "two"], env=env(address), config=ON) as host:
        host.host.hooks.post("post_tool_call", tool_name="look", tool_call_id="c\ud800", turn_id="t", session_id="s")
        host.ask("first")
        found.wait(5)
        host.ask("second")
        spans = found.wait(7)
    assert found.faults == []
    said = [one["value"] for span in spans for one in span["attributes"] if one["key"] == "gen_ai.tool.call.id"]
    assert {"stringValue": "c\ud800"} in said


def test_spans_wait_for_a_collector_that_is_away(collector: tuple[Collector, str]) -> None:
    found, address = collector
    found.away = True
    with plugin_host(model=["one", "two"], env=env(address), config=ON) as host:
        host.ask("first")
        found.away = False
        host.ask("second")
        spans = found.wait(4)
    assert [span["name"].split()[0] for span in spans] == ["chat", "invoke_agent"] * 2
    assert len({span["traceId"] for span in spans}) == 2


def test_no_turn_waits_for_a_collector_that_never_answers_and_what_is_too_much_is_counted(
    collector: tuple[Collector, str],
) -> None:
    found, address = collector
    asked, answers = threading.Event(), threading.Event()
    take = found.take

    def holds(path: str, headers: Any, body: str) -> int:
        if answers.is_set():
            return take(path, headers, body)
        asked.set()
        assert answers.wait(120)
        return 503  # too late for who gave up meanwhile, and who did not sends it again

    found.take = holds  # type: ignore[method-assign]
    with plugin_host(model=["one", "two", "three"], env=env(address), config=ON) as host:
        host.ask("first")
        assert asked.wait(60)
        host.ask("second")
        hooks = host.host.hooks
        for number in range(2100):
            hooks.fire("post_tool_call", tool_name=f"t{number}", turn_id="t", session_id="s")
            assert number % 20 or hooks.wait_idle(60), "a slow machine runs an observer after its call"
        assert hooks.wait_idle(60)
        host.ask("third")
        assert hooks.wait_idle(60)
        assert found.spans == [], "three turns ended, and the collector has not answered yet"
        answers.set()
        names = [span["name"] for span in found.wait(2048)]
    assert names[-1].startswith("invoke_agent")
    assert ("execute_tool t0" in names, "execute_tool t2099" in names) == (False, True)


def test_the_headers_go_nowhere_that_the_collector_points_to(collector: tuple[Collector, str]) -> None:
    found, address = collector
    found.elsewhere = True
    with plugin_host(model=["one", "two"], env=env(address), config=ON) as host:
        host.ask("first")
        assert found.redirected.wait(60)
        found.elsewhere = False
        host.ask("second")
        spans = found.wait(4)
    assert found.followed == []
    assert len(spans) == 4


def test_nobody_observes_before_the_operator_says_so(collector: tuple[Collector, str]) -> None:
    found, address = collector
    with plugin_host(model=["one"], env=env(address)) as host:
        host.ask("first")
        assert not host.host.hooks.has("post_api_request")
    assert found.spans == []
