"""Tools of a real MCP server, in a real host: what the model is shown, and what it gets."""

from __future__ import annotations

import json
from pathlib import Path

from e2e.mcp.conftest import result, shown, until
from hermes_agent.testing import PluginHost, call


def test_the_words_of_a_server_are_marked_as_a_strangers(host: PluginHost) -> None:
    host.model.say(call("mcp__weather__echo", text="rain"), "done")
    assert (
        host.ask("go").tool_calls[0].result == '<foreign-text from="MCP server weather">\ntest: rain\n</foreign-text>'
    )


def test_its_tools_are_one_toolset_that_has_the_servers_name_too(host: PluginHost) -> None:
    tools = host.host.tools
    assert tools.get_toolset_for_tool("mcp__weather__echo") == "mcp-weather"
    assert "mcp__weather__echo" in host.host.toolsets.resolve("weather")
    assert tools.get_toolset_alias_target("weather") == "mcp-weather"
    schema = tools.get_schema("mcp__weather__echo") or {}
    assert schema["description"] == "(weather, an MCP server) Return the text."
    assert schema["parameters"]["required"] == ["text"]


def test_what_is_structured_comes_once(host: PluginHost) -> None:
    assert json.loads(shown(result(host, "get_sum", a=2, b=3))) == {"total": 5}


def test_an_error_of_a_tool_is_an_error_of_the_call(host: PluginHost) -> None:
    host.model.say(call("mcp__weather__fail"), "done")
    done = host.ask("go").tool_calls[0]
    assert done.status == "error"
    assert "it is raining" in json.loads(done.result)["error"]


def test_a_picture_becomes_a_file_that_can_be_sent(host: PluginHost) -> None:
    file = json.loads(result(host, "picture"))["files"][0]
    assert Path(file["path"]).read_bytes().startswith(b"\x89PNG")
    assert file["media_tag"] == f"MEDIA:{file['path']}"


def test_resources_and_prompts_have_tools_of_their_own(host: PluginHost) -> None:
    assert "note://today" in result(host, "list_resources")
    assert shown(result(host, "read_resource", uri="note://today")) == "water the plants"
    assert "greeting" in result(host, "list_prompts")
    assert shown(result(host, "get_prompt", name="greeting", arguments={"name": "Ada"})) == "Say hello to Ada."


def test_wrong_arguments_are_answered_and_nothing_is_lost(host: PluginHost) -> None:
    assert "error" in result(host, "get_sum", a="much", b=1)
    assert "refused" in result(host, "read_resource", uri="note://none")
    assert shown(result(host, "echo", text="still here")) == "test: still here"


def test_the_program_gets_no_secret_of_the_agent(host: PluginHost) -> None:
    environ = json.loads(shown(result(host, "environment")))
    assert "OPENAI_API_KEY" not in environ
    assert "HERMES_HOME" not in environ
    assert environ["PATH"]


def test_what_it_prints_to_standard_error_is_logged(host: PluginHost) -> None:
    result(host, "stderr", text="low on water")
    until(lambda: "hermes_agent.mcp.stderr: weather: low on water" in host.log_text)


def test_a_tool_that_comes_later_can_be_called(host: PluginHost) -> None:
    result(host, "grow", name="umbrella")
    until(lambda: "mcp__weather__umbrella" in host.host.tools.names())
    assert shown(result(host, "umbrella")) == "grown"


def test_a_hint_makes_us_more_careful_and_never_less(host: PluginHost) -> None:
    tools = host.host.tools
    does = {name: entry.effect.does for name, entry in tools.items() if entry.toolset == "mcp-weather" and entry.effect}
    assert does["mcp__weather__get_sum"] == "reads"
    assert does["mcp__weather__get_and_send"] == "sends"
