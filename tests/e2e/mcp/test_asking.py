"""What a server asks while it works: the model, and the person."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.mcp.conftest import mcp_config, program, quiet, result, shown
from hermes_agent.mcp.servers import McpServers
from hermes_agent.testing import PluginHost, plugin_host
from people import Person

pytest.importorskip("mcp")


@pytest.fixture(scope="module")
def asking() -> Iterator[PluginHost]:
    sampling = {"max_rpm": 2, "max_tokens_cap": 20}
    with plugin_host(quiet, config=mcp_config(weather=program(sampling=sampling))) as host:
        host.host.service(McpServers).wait_connected(60)
        yield host


def test_a_server_gets_answers_of_the_model_so_many_in_a_minute(asking: PluginHost) -> None:
    asking.model.say("sunny", "cloudy")
    assert "says sunny" in shown(result(asking, "ask_model", question="How is the weather?"))
    assert asking.model.requests[-1]["max_tokens"] == 20
    assert asking.model.requests[-1]["messages"][-1]["content"] == "How is the weather?"
    assert "says cloudy" in shown(result(asking, "ask_model", question="And now?"))
    assert "too many requests" in result(asking, "ask_model", question="And now?")


def test_a_person_fills_in_a_form_and_is_told_who_asks(asking: PluginHost) -> None:
    person = asking.conversation.approvals.approver = Person(always="once", clarifies=["green", "yes"])
    assert shown(result(asking, "ask_person")) == "accept colour='green' sure=True"
    assert person.asked[0].startswith("The MCP server weather asks (it is given your answer): Which colour?")
    asking.conversation.approvals.approver = Person(always="once", clarifies=["decline"])
    assert shown(result(asking, "ask_person")) == "decline None"


def test_where_nobody_is_there_the_answer_is_no(host: PluginHost) -> None:
    assert shown(result(host, "ask_person")) == "decline None"


def test_what_is_forbidden_is_not_offered_to_the_server() -> None:
    off = {"enabled": False}
    with plugin_host(quiet, config=mcp_config(weather=program(sampling=off, elicitation=off))) as host:
        host.host.service(McpServers).wait_connected(60)
        assert "error" in result(host, "ask_model", question="x")
        assert "error" in result(host, "ask_person")
