"""Acceptance list of the plugin contract of 0.23, part H: hooks that fire. One test a sentence, with its number."""

from __future__ import annotations

from typing import Any

from hermes_agent.core.errors import ModelError
from hermes_agent.testing import ModelFailure, PluginHost, plugin_host

IDLE_S = 30.0


class Listener:
    """A plugin that listens to some hooks and keeps the keywords."""

    def __init__(self, *hooks: str) -> None:
        self.hooks = hooks
        self.seen: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, ctx: Any) -> None:
        for hook in self.hooks:
            ctx.register_hook(hook, lambda hook=hook, **kw: self.seen.append((hook, kw)))

    def of(self, hook: str) -> list[dict[str, Any]]:
        return [keywords for name, keywords in self.seen if name == hook]


def settle(host: PluginHost) -> None:
    assert host.host.hooks.wait_idle(IDLE_S)


def test_h7_the_pieces_of_a_stream_come_in_order_and_make_the_final_text() -> None:
    listener = Listener("on_stream_start", "on_stream_delta", "on_stream_end")
    with plugin_host(listener, model=["an answer of several words"]) as host:
        answer = host.ask("hi")
        settle(host)
    names = [name for name, _ in listener.seen]
    assert (names[0], names[-1]) == ("on_stream_start", "on_stream_end")
    assert set(names[1:-1]) == {"on_stream_delta"}
    (end,) = listener.of("on_stream_end")
    pieces = listener.of("on_stream_delta")
    assert "".join(piece["delta"] for piece in pieces) == end["final_text"] == answer.text
    assert {piece["kind"] for piece in pieces} == {"text"}
    assert (end["finished"], end["error"], end["iteration"], end["surface"]) == (True, None, 1, "cli")


def test_h9_the_hooks_of_an_auxiliary_call_come_in_pairs_also_when_it_fails() -> None:
    listener = Listener("pre_auxiliary_call", "post_auxiliary_call")
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "hi"}]
    with plugin_host(listener, model=["fine", ModelFailure("broken", 400)]) as host:
        host.ctx.llm.complete(messages, purpose="test", max_tokens=5)
        try:
            host.ctx.llm.complete(messages)
        except ModelError:
            failed = True
        settle(host)
    assert failed
    before, after = listener.of("pre_auxiliary_call"), listener.of("post_auxiliary_call")
    assert [b["api_request_id"] for b in before] == [a["api_request_id"] for a in after]
    assert before[0]["api_request_id"] != before[1]["api_request_id"]
    assert before[0]["system_prompt"] == "Be short."
    assert before[0]["request"]["body"]["messages"] == before[0]["request_messages"]
    assert (before[0]["message_count"], before[0]["max_tokens"], before[0]["aux_task"]) == (2, 5, "plugin")
    assert after[0]["usage"]["output_tokens"] > 0
    assert (after[0]["error"], after[0]["assistant_content_chars"]) == (None, 4)
    assert (after[1]["usage"], after[1]["response"], after[1]["error_type"]) == (None, None, "ModelError")


def test_h14_a_command_is_announced_with_its_own_name_for_an_alias() -> None:
    listener = Listener("pre_command")
    with plugin_host(listener) as host:
        host.run_command("/plugins")
        settle(host)
    (command,) = listener.of("pre_command")
    assert (command["surface"], command["command"], command["args_raw"]) == ("cli", "plugins", "")


def test_h17_the_first_use_of_a_skill_is_reported_with_its_provenance() -> None:
    listener = Listener("on_skill_lifecycle")
    with plugin_host(listener) as host:
        folder = host.home / "skills" / "tea"
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text("---\nname: tea\ndescription: Make tea.\n---\nBoil water.\n")
        host.dispatch_tool("skill_view", {"name": "tea"})
        host.dispatch_tool("skill_view", {"name": "tea"})
        settle(host)
    first, second = listener.of("on_skill_lifecycle")
    assert (first["skill_name"], first["provenance"], first["use_count"], first["reused"]) == ("tea", "local", 1, False)
    assert (second["use_count"], second["reused"]) == (2, True)
