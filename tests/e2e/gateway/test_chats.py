"""A chat from end to end: the gateway, a scripted model over HTTP, a platform in memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from attack.racing import exchanging
from hermes_agent.adapters.events import MessageEvent, MessageType, ProcessingOutcome, SendResult, get_session_env
from hermes_agent.cron import Job, JobStore, Schedule
from hermes_agent.testing import call
from hermes_agent.testing.chat import Chat, MemoryAdapter, chat_host, memory_platform

SCHEMA = {"name": "wait", "description": "x", "parameters": {"type": "object", "properties": {}}}


class Gate:
    """A tool that runs until it is let go, or told to stop."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.stopped = threading.Event()

    def __call__(self, ctx: Any) -> None:
        ctx.register_tool("wait", "gate", SCHEMA, self.wait)

    def wait(self, args: dict[str, Any], **kwargs: Any) -> str:
        from hermes_agent.tools import current_scope

        scope = current_scope.get()
        assert scope is not None
        self.begun.set()
        while not self.go.wait(0.01):
            if scope.cancelled.is_set():
                self.stopped.set()
                break
        return json.dumps({"ok": True})


def said(chat: Chat) -> list[str]:
    """What people said in the session that the model was asked in last."""
    return [m["content"] for m in chat.host.model.messages if m["role"] == "user"]


def test_a_message_is_answered_as_a_reply_in_its_chat() -> None:
    with chat_host(model=["Hello Ann."]) as chat:
        number = chat.write("hi")
        (answer,) = chat.answers(1)
        sent = chat.adapter.sent[0]
        chat.wait(lambda: chat.adapter.outcomes == [("hi", ProcessingOutcome.SUCCESS)])

    assert answer == "Hello Ann."
    assert (sent.chat, sent.reply_to, sent.metadata["notify"]) == ("room", number, True)
    assert chat.host.model.messages[-1] == {"role": "user", "content": "hi"}


def test_the_next_message_goes_on_in_the_same_session_and_another_chat_has_its_own() -> None:
    with chat_host(model=["one", "two", "three"]) as chat:
        chat.ask("first")
        chat.ask("second")
        here = said(chat)
        chat.ask("elsewhere", chat="other")

    assert here == ["first", "second"]
    assert said(chat) == ["elsewhere"]


def test_a_message_that_comes_twice_is_answered_once() -> None:
    with chat_host(model=["one", "two"]) as chat:
        chat.ask("hi", message_id="same")
        chat.write("hi", message_id="same")
        assert chat.ask("more") == "two"


def test_a_tool_sees_whose_message_it_works_on() -> None:
    seen: list[str] = []

    def register(ctx: Any) -> None:
        def look(args: dict[str, Any], **kwargs: Any) -> str:
            seen.extend(get_session_env(f"HERMES_SESSION_{name}") for name in ("PLATFORM", "CHAT_ID", "USER_ID", "KEY"))
            return "{}"

        ctx.register_tool("look", "look", {**SCHEMA, "name": "look"}, look)

    with chat_host(register, model=[call("look"), "seen"]) as chat:
        chat.ask("look")

    assert seen == ["memorychat", "room", "ann", "agent:main:memorychat:dm:room"]


def test_a_plugin_finds_in_the_database_which_chat_a_session_belongs_to() -> None:
    asked = "SELECT source, session_key, user_id, chat_id, thread_id, model_config FROM sessions"
    rows: list[tuple[Any, ...]] = []

    def register(ctx: Any) -> None:
        def look(args: dict[str, Any], **kwargs: Any) -> str:
            with contextlib.closing(sqlite3.connect(DEFAULT_DB_PATH.parent / "state.db")) as db:
                rows.extend(db.execute(asked))
            return "{}"

        from hermes_state import DEFAULT_DB_PATH  # type: ignore[import-not-found]

        ctx.register_tool("look", "look", {**SCHEMA, "name": "look"}, look)

    with chat_host(register, model=[call("look"), "seen"]) as chat:
        chat.ask("look")

    assert rows == [("memorychat", "agent:main:memorychat:dm:room", "ann", "room", "", "{}")]


def test_a_long_answer_comes_in_messages_of_the_platform_s_length() -> None:
    words = " ".join(f"word{n}" for n in range(100))
    with chat_host(model=[words]) as chat:
        chat.write("long")
        chat.wait(lambda: chat.texts and "word99" in chat.texts[-1])
        texts = chat.texts
        replies = [one.reply_to for one in chat.adapter.sent]

    assert len(texts) > 3
    assert all(len(text) <= MemoryAdapter.MAX_MESSAGE_LENGTH for text in texts)
    assert texts[0].endswith(f"(1/{len(texts)})")
    assert replies[0] is not None
    assert set(replies[1:]) == {None}


def test_files_are_sent_and_secrets_are_not(tmp_path: Path) -> None:
    report, secret = tmp_path / "report.pdf", tmp_path / "id_rsa"
    report.write_text("x")
    secret.write_text("x")
    with chat_host(model=[f"Here.\nMEDIA:{report}\nMEDIA:{secret}"]) as chat:
        assert chat.ask("the report") == "Here."
        chat.wait(lambda: chat.adapter.files)
        ((room, sent),) = chat.adapter.files
        assert (room, Path(sent).name, Path(sent).read_text()) == ("room", "report.pdf", "x")


@pytest.mark.attack("races")
def test_a_file_that_becomes_a_link_before_it_is_sent_is_sent_as_it_was(tmp_path: Path, attempt: Any) -> None:
    report, secret = tmp_path / "report.pdf", tmp_path / "id_rsa"
    report.write_text("report")
    secret.write_text("private")
    (tmp_path / "link").symlink_to(secret)
    with chat_host(model=[f"Here {number}.\nMEDIA:{report}" for number in range(10)]) as chat:
        with exchanging(report, tmp_path / "link"):
            for number in range(10):
                chat.ask(f"report {number}")
        for _, sent in chat.adapter.files:
            attempt(Path(sent).read_text() == "report" and not Path(sent).is_symlink(), sent)
        attempt(
            all(not Path(sent).is_relative_to(tmp_path) for _, sent in chat.adapter.files), "a path that can change"
        )


def test_silence_is_not_sent() -> None:
    with chat_host(model=["[SILENT]", "words"]) as chat:
        chat.write("psst")
        chat.wait(lambda: chat.adapter.outcomes)
        assert chat.ask("say something") == "words"


def test_a_message_that_is_worked_on_before_its_bringer_goes_on_does_not_stop_its_own_turn() -> None:
    with chat_host(model=["words"]) as chat:
        delivery, chats = chat.host.host.delivery, chat.gateway.session_store
        receive = delivery.receive

        async def late(message: Any) -> Any:
            receipt = await receive(message)
            while not chats.running:  # noqa: ASYNC110 - the turn begins in this very loop
                await asyncio.sleep(0)
            return receipt

        delivery.receive = late
        assert chat.ask("hello") == "words"


def test_a_model_that_fails_is_told_in_one_sentence_and_the_next_message_works() -> None:
    from hermes_agent.testing import ModelFailure

    with chat_host(model=[ModelFailure("no such model", 404), "fine"]) as chat:
        assert chat.ask("hi").startswith("⚠️ ")
        assert chat.ask("again") == "fine"


def test_a_send_that_fails_is_repeated_and_a_lost_one_is_marked() -> None:
    with chat_host(model=["one", "two"]) as chat:
        chat.adapter.failures = [SendResult(False, error="busy", retryable=True, retry_after=0)]
        assert chat.ask("hi") == "one"
        chat.adapter.failures = [SendResult(False, error="timed out")]
        assert chat.ask("more") == "(repeated) two"


def test_an_adapter_that_says_when_a_send_begins_was_not_sending_before() -> None:
    class Waits(MemoryAdapter):
        begins_sends = True
        lost_before, lost_after = 2, 0

        async def send(self, chat_id: str, content: str, reply_to: Any = None, metadata: Any = None) -> SendResult:
            if self.lost_before:
                self.lost_before -= 1
                raise TimeoutError("nobody let it through")
            await metadata["begin_send"]()
            if self.lost_after:
                self.lost_after -= 1
                raise TimeoutError("nobody confirmed it")
            return await super().send(chat_id, content, reply_to, metadata)

    with chat_host(model=["one", "two"], platform=memory_platform(Waits)) as chat:
        assert chat.ask("hi") == "one"
        chat.adapter.lost_after = 1
        assert chat.ask("more") == "(repeated) two"


def test_a_picture_that_is_refused_for_a_while_comes_later() -> None:
    class Pictures(MemoryAdapter):
        async def send_image(self, chat_id: str, image_url: str, *args: Any, **kwargs: Any) -> SendResult:
            return await self.send(chat_id, f"picture {image_url}")

    both = "![a](https://x.org/a.png) ![b](https://x.org/b.png)"
    with chat_host(model=[both], platform=memory_platform(Pictures)) as chat:
        chat.adapter.failures = [SendResult(False, error="busy", error_kind="rate_limited", retry_after=0)]
        chat.write("two pictures")
        assert chat.answers(2) == ["picture https://x.org/a.png", "picture https://x.org/b.png"]


def test_a_failure_that_names_no_kind_is_known_by_its_text() -> None:
    with chat_host(model=["Hello Ann."]) as chat:
        refused = "<urlopen error [Errno 111] Connection refused>"
        down = SendResult(False, error=refused, error_kind="unknown", retry_after=0)
        chat.adapter.failures = [down] * 12
        assert chat.ask("hi") == "Hello Ann."


def test_a_file_that_is_not_allowed_in_a_chat_does_not_end_the_chat(tmp_path: Path) -> None:
    class Strict(MemoryAdapter):
        async def send_document(self, *args: Any, **kwargs: Any) -> SendResult:
            return SendResult(False, error="not enough rights to send documents", error_kind="forbidden")

    report = tmp_path / "report.pdf"
    report.write_text("x")
    with chat_host(model=[f"Here.\nMEDIA:{report}", "words"], platform=memory_platform(Strict)) as chat:
        assert chat.ask("the report") == "Here."
        chat.wait(lambda: chat.adapter.outcomes)
        assert chat.ask("and now?") == "words"


def test_a_broken_form_is_sent_as_plain_text() -> None:
    with chat_host(model=["**bold**"]) as chat:
        chat.adapter.failures = [SendResult(False, error="can't parse entities")]
        assert chat.ask("hi") == "bold"


# -- while the agent works ---------------------------------------------------------------------------------------------


def test_stop_reaches_a_running_tool_and_drops_what_waits() -> None:
    gate = Gate()
    config = {"display": {"busy_input_mode": "queue", "tool_progress": "off"}}
    with chat_host(gate, model=[call("wait"), "after"], config=config) as chat:
        chat.write("work")
        assert gate.begun.wait(60)
        chat.write("one more thing")
        assert chat.ask("/stop") == "Stopped. 1 waiting message dropped."
        assert gate.stopped.wait(60)
        chat.wait(lambda: chat.adapter.outcomes, "the end of the turn")
        assert chat.ask("/stop") == "No turn is running."
        assert chat.ask("and now?") == "after"
        assert "one more thing" not in said(chat)


def test_a_message_interrupts_the_turn_and_is_answered_itself() -> None:
    gate = Gate()
    with chat_host(gate, model=[call("wait"), "the second"]) as chat:
        chat.write("first")
        assert gate.begun.wait(60)
        assert chat.ask("second") == "the second"
        assert gate.stopped.wait(60)
        assert said(chat) == ["first", "second"]


def by_question(*known: str) -> Any:
    """Answer the last of the known words that was said."""
    return lambda request: f"about {[m['content'] for m in request['messages'] if m['content'] in known][-1]}"


def test_a_message_that_is_overtaken_before_its_turn_begins_is_part_of_the_conversation() -> None:
    begun, go = threading.Event(), threading.Event()

    class Slow(MemoryAdapter):
        async def on_processing_start(self, event: MessageEvent) -> None:
            begun.set()
            while not go.is_set():  # noqa: ASYNC110 - set by the test's thread
                await asyncio.sleep(0.01)

    model = [by_question("first", "second")] * 2
    with chat_host(model=model, platform=memory_platform(Slow)) as chat:
        chat.write("first")
        assert begun.wait(60)
        chat.write("second")
        go.set()
        chat.wait(lambda: "about second" in chat.texts)
        assert said(chat) == ["first", "second"]


@pytest.mark.parametrize("word", ["/stop", "/new now"])
def test_a_turn_is_stopped_that_has_not_begun_yet(word: str) -> None:
    begun, go = threading.Event(), threading.Event()

    def hear(path: str) -> str:
        begun.set()
        go.wait(60)
        return "do it"

    with chat_host(model=["fresh", "never"], transcribe=hear) as chat:
        chat.write("", media_urls=["voice.ogg"], media_types=["audio/ogg"], message_type=MessageType.VOICE)
        assert begun.wait(60)
        chat.write(word)
        running = chat.gateway.session_store.running
        chat.wait(lambda: any(turn.interrupt_reason for turn in list(running.values())))
        go.set()
        chat.wait(lambda: chat.adapter.outcomes and len(chat.texts) == 1)
        assert chat.host.model.requests == []
        assert chat.ask("hi") == "fresh"


def test_with_queue_a_message_waits_for_the_turn() -> None:
    gate = Gate()
    config = {"display": {"busy_input_mode": "queue", "tool_progress": "off"}}
    with chat_host(gate, model=[call("wait"), "one", "two"], config=config) as chat:
        chat.write("first")
        assert gate.begun.wait(60)
        chat.write("second")
        gate.go.set()
        assert chat.answers(2) == ["one", "two"]
        assert not gate.stopped.is_set()


@pytest.mark.parametrize("text", ["also this", "/steer also this"])
def test_a_steering_message_is_taken_up_by_the_running_turn(text: str) -> None:
    gate = Gate()
    mode = "queue" if text.startswith("/") else "steer"
    config = {"display": {"busy_input_mode": mode, "tool_progress": "off"}}
    with chat_host(gate, model=[call("wait"), "both", "next"], config=config) as chat:
        chat.write("first")
        assert gate.begun.wait(60)
        chat.write(text)
        gate.go.set()
        assert chat.answers(1) == ["both"]
        assert said(chat) == ["first", "also this"]
        assert chat.ask("more") == "next"


def test_a_steering_message_that_comes_while_the_turn_ends_is_answered_behind_it() -> None:
    gate = Gate()
    config = {"display": {"busy_input_mode": "steer", "tool_progress": "off"}}
    with chat_host(gate, model=[call("wait"), "one", "two"], config=config) as chat:
        chat.write("first")
        assert gate.begun.wait(60)
        (running,) = chat.gateway.session_store.running.values()
        absorb = running.message.absorb

        async def late(receipt: int) -> bool:
            absorbed = await absorb(receipt)
            gate.go.set()
            while running.conversation is not None:  # noqa: ASYNC110 - the turn ends in this very loop
                await asyncio.sleep(0.01)
            return absorbed

        running.message.absorb = late
        chat.write("second")
        assert chat.answers(2) == ["one", "two"]
        assert said(chat) == ["first", "second"]


def test_status_is_answered_while_a_turn_runs() -> None:
    gate = Gate()
    with chat_host(gate, model=[call("wait"), "done"]) as chat:
        assert "Session: none yet" in chat.ask("/status")
        chat.write("work")
        assert gate.begun.wait(60)
        status = chat.ask("/status")
        gate.go.set()
        chat.wait(lambda: "done" in chat.texts)

    assert "Working for" in status
    assert "scripted-model" in status


# -- sessions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["/new", "/reset", "/clear", "start over"])
def test_new_begins_another_session(word: str) -> None:
    with chat_host(model=["one", "two"], config={"reset_triggers": ["start over", "/new"]}) as chat:
        chat.ask("first")
        assert chat.ask(word).startswith("❓ Start a new session?")
        assert chat.ask("/approve").startswith("New session ")
        chat.ask("second")

    assert said(chat) == ["second"]


def test_new_stops_what_runs() -> None:
    gate = Gate()
    with chat_host(gate, model=[call("wait"), "fresh"]) as chat:
        chat.write("work")
        assert gate.begun.wait(60)
        assert chat.ask("/new now").startswith("New session")
        assert gate.stopped.wait(60)
        assert chat.ask("hi") == "fresh"
        assert said(chat) == ["hi"]


def test_new_holds_although_a_message_that_waited_is_just_being_opened() -> None:
    gate, opening, fresh = Gate(), threading.Event(), threading.Event()
    config = {"display": {"busy_input_mode": "queue", "tool_progress": "off"}}
    with chat_host(gate, model=[call("wait"), "two", "three"], config=config) as chat:
        chats = chat.gateway.session_store
        chat.write("first")
        assert gate.begun.wait(60)
        chat.write("second")
        route = chats.route

        async def late(key: str) -> Any:
            task, found = asyncio.current_task(), None
            beside = task is not None and "!" in task.get_name()
            if not beside:
                found = await route(key)
                opening.set()
            while not (opening if beside else fresh).is_set():  # noqa: ASYNC110 - set by threads
                await asyncio.sleep(0.01)
            return await route(key) if beside else found

        chats.route = late
        assert chat.ask("/new now").startswith("New session")
        fresh.set()
        chat.wait(lambda: "two" in chat.texts)
        chat.ask("third")

    assert said(chat) == ["third"]


def test_undo_forgets_and_retry_asks_again() -> None:
    with chat_host(model=["one", "two", "other", "last"]) as chat:
        chat.ask("first")
        chat.ask("second")
        assert chat.ask("/retry") == "other"
        assert said(chat) == ["first", "second"]
        assert chat.ask("/undo now") == "Forgotten: second"
        chat.ask("third")
        assert said(chat) == ["first", "third"]


def test_a_session_is_named_and_resumed_by_its_owner_alone() -> None:
    with chat_host(model=["one", "two", "three", "four"]) as chat:
        chat.ask("secret plans")
        assert chat.ask("/title my plans") == "Title: my plans"
        first = chat.ask("/status").splitlines()[0].split()[1]
        chat.ask("/new now")
        chat.ask("other things")

        assert "my plans" not in chat.ask("/resume", user="bob", chat="bobs")
        assert "There is no session" in chat.ask(f"/resume {first}", user="bob", chat="bobs")

        assert "my plans" in chat.ask("/resume")
        assert chat.ask("/resume my plans") == f"Resumed {first}: my plans"
        chat.ask("go on")
        assert said(chat) == ["secret plans", "go on"]
        assert "direct chat" in chat.ask("/resume", chat="g", chat_type="group")


def test_a_chat_has_its_own_model() -> None:
    with chat_host(model=["one"]) as chat:
        assert chat.ask("/model other-model") == "Model: other-model"
        chat.ask("hi")
        assert chat.ask("/model", chat="elsewhere") == "Model: scripted-model"

    assert chat.host.model.requests[-1]["model"] == "other-model"


def test_a_channel_has_its_own_model_and_words_in_the_prompt() -> None:
    override = {"model": "channel-model", "system_prompt": "Talk like a pirate."}
    config = {"platforms": {"memorychat": {"channel_overrides": {"sea": override}}}}
    with chat_host(model=["arr", "hello"], config=config) as chat:
        chat.ask("hi", chat="sea")
        request = chat.host.model.requests[-1]
        chat.ask("hi", channel_prompt="Be brief.")

    assert (request["model"], "Talk like a pirate." in request["messages"][0]["content"]) == ("channel-model", True)
    assert "Be brief." in chat.host.model.messages[0]["content"]


def test_background_work_has_a_session_of_its_own() -> None:
    gate = Gate()
    with chat_host(gate, model=[call("wait"), "report", "hello"]) as chat:
        assert chat.ask("/background write a report").startswith("Started in the background")
        assert gate.begun.wait(60)
        gate.go.set()
        chat.wait(lambda: "report" in chat.texts)
        chat.ask("hi")
        assert said(chat) == ["hi"]


def test_background_work_is_stopped_with_all() -> None:
    gate = Gate()
    with chat_host(gate, model=[call("wait")]) as chat:
        chat.ask("/background write a report")
        assert gate.begun.wait(60)
        assert chat.ask("/stop") == "No turn is running."
        assert "Background turns: 1" in chat.ask("/status")
        assert chat.ask("/stop all") == "Stopped."
        chat.wait(lambda: chat.adapter.outcomes)
        assert gate.stopped.wait(60)


def test_a_command_that_waits_does_not_end_the_turn() -> None:
    gate = Gate()
    with chat_host(gate, model=[call("wait"), "done"]) as chat:
        chat.write("work")
        assert gate.begun.wait(60)
        chat.write("/title long work")
        gate.go.set()
        assert chat.answers(2) == ["done", "Title: long work"]


def test_a_session_that_was_left_is_over() -> None:
    now = [1e9]
    config = {"session_reset": {"mode": "idle", "idle_minutes": 5}}
    with chat_host(model=["one", "two", "three"], config=config, clock=lambda: now[0]) as chat:
        chat.ask("first")
        now[0] += 299
        chat.ask("still")
        assert said(chat) == ["first", "still"]
        now[0] += 301
        chat.ask("second")

    assert said(chat) == ["second"]


def test_in_a_group_each_person_has_a_session_unless_the_room_has_one() -> None:
    with chat_host(model=["one", "two"]) as chat:
        chat.ask("from ann", chat="g", chat_type="group")
        chat.ask("from bob", chat="g", chat_type="group", user="bob")
        assert said(chat) == ["from bob"]
    with chat_host(model=["one", "two"], config={"group_sessions_per_user": False}) as chat:
        chat.ask("hello", chat="g", chat_type="group", user_name="Ann")
        chat.ask("hello", chat="g", chat_type="group", user="bob", user_name="Bob")
        assert said(chat) == ["[Ann] hello", "[Bob] hello"]


def test_a_restart_in_the_middle_of_a_turn_answers_the_message_once() -> None:
    gate = Gate()
    with chat_host(gate, model=[call("wait"), "finished"]) as chat:
        chat.write("work")
        assert gate.begun.wait(60)
        chat.stop(at_once=True)
        first = chat.texts
        gate.go.set()
        chat.start()
        assert chat.answers(1) == ["finished"]

    assert first == []
    assert said(chat) == ["work"]
    assert "end of this call is unknown" in chat.host.model.messages[-1]["content"]


# -- commands, skills, plugins -----------------------------------------------------------------------------------------


def test_plugins_commands_and_skills_work_and_a_name_that_nobody_has_is_told() -> None:
    def register(ctx: Any) -> None:
        ctx.register_command("shout", lambda raw: raw.upper(), args_hint="TEXT", description="Shout")

    with chat_host(register, model=["tea is ready"]) as chat:
        folder = chat.host.home / "skills" / "tea"
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text("---\nname: tea\ndescription: Make tea.\n---\nBoil water.\n")
        assert chat.ask("/shout hello") == "HELLO"
        assert chat.ask("/tea two cups") == "tea is ready"
        assert "Boil water." in said(chat)[-1]
        assert chat.ask("/nothing") == "There is no command /nothing. /help lists them."
        assert "Did you mean /status?" in chat.ask("/staus")
        everything = chat.ask("/help")
        assert not everything.startswith("There is no")


def test_a_plugins_command_calls_tools_for_who_gave_it() -> None:
    def register(ctx: Any) -> None:
        ctx.register_command("jobs", lambda raw: ctx.dispatch_tool("cronjob", {"action": "list"}))

    with chat_host(register) as chat:
        with contextlib.closing(JobStore(chat.host.home / "state.db")) as store:
            store.put(Job("", "of the operator", Schedule("once", ""), prompt="x"))
        assert json.loads(chat.ask("/jobs"))["jobs"] == []


def test_where_each_line_is_a_message_help_is_three_lines_and_the_whole_list_comes_on_request() -> None:
    class Lines(MemoryAdapter):
        sends_lines = True
        typed_command_prefix = "!"
        MAX_MESSAGE_LENGTH = 100_000

    def register(ctx: Any) -> None:
        for number in range(60):
            ctx.register_command(f"command-{number}", lambda text: "", description="does something")

    with chat_host(register, platform=memory_platform(Lines)) as chat:
        short = chat.ask("/help")
        assert len(short.splitlines()) == 3
        assert all(len(line) < 400 for line in short.splitlines())
        assert "!stop" in short and "!command-1" in short and "more" in short
        assert "!help all" in short.splitlines()[-1]
        everything = chat.ask("/help all")
        assert chat.ask("/help !stop").startswith("!stop [all]: Stop the running turn")
        assert chat.ask("/help nothing") == "There is no command !nothing here. !help lists the commands."
        assert len(everything.splitlines()) > 70 and "!command-59: does something" in everything


def test_what_a_plugin_says_in_a_quiet_chat_is_answered_there() -> None:
    contexts: list[Any] = []
    with chat_host(contexts.append, model=["hello", "noted"]) as chat:
        chat.ask("hi")
        session = chat.ask("/status").splitlines()[0].split()[1]
        assert contexts[0].inject_message("the build is done", session_id=session)
        chat.wait(lambda: "noted" in chat.texts)

    assert said(chat)[-1] == "the build is done"


def test_a_picture_is_shown_to_a_model_that_looks_and_named_to_another(tmp_path: Path) -> None:
    picture = tmp_path / "cat.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    with chat_host(model=["a cat"], config={"gateway": {"pictures": "always"}}) as chat:
        chat.ask("what is it?", media_urls=[str(picture)], media_types=["image/png"])
        parts = chat.host.model.messages[-1]["content"]
    with chat_host(model=["a file"]) as blind:
        blind.ask("what is it?", media_urls=[str(picture)], media_types=["image/png"])

    assert parts[1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert f"[Picture that came with it: {picture} (image/png)]" in said(blind)[-1]


def test_a_message_waits_for_a_full_disk_and_so_does_the_adapter_that_brings_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waits = threading.Event()
    caplog.handler.addFilter(lambda record: "not stored" not in record.msg or waits.set() or True)

    def pages(box: Any, most: int) -> Any:
        return box._db.read(f"PRAGMA max_page_count = {most}")

    with chat_host(model=["there is room"]) as chat:
        stored = chat.host.host.delivery._mailbox
        chat.host._run(stored.call(pages, 1))  # what is there stays, and nothing more
        brings = threading.Thread(target=chat.write, args=("y" * 100_000,))
        brings.start()
        assert waits.wait(60) and brings.is_alive()
        chat.host._run(stored.call(pages, 1 << 30))
        brings.join(60)
        assert chat.answers(1) == ["there is room"]
