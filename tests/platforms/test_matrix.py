"""Matrix: the bundled platform at a real Synapse, which `make test-matrix` installs."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contracts.platform_suite import Bench, PlatformSuite
from hermes_agent.adapters.events import MessageType, ProcessingOutcome
from peers.install import NotInstalled
from peers.matrix import PASSWORD, Member, Synapse, synapse
from platforms.conftest import PNG, WAIT_S, Inbox, Make, do

numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Synapse]:
    try:
        with synapse(tmp_path_factory.mktemp("synapse")) as running:
            yield running
    except NotInstalled as exc:
        pytest.skip(str(exc))


@pytest.fixture
def agent(server: Synapse) -> Member:
    return server.register(f"hermes{next(numbers)}")


@pytest.fixture
def ann(server: Synapse) -> Member:
    return server.register(f"ann{next(numbers)}")


class Here:
    """The agent and Ann, alone in `direct` and with Bob in `room`."""

    def __init__(self, make: Make, server: Synapse, agent: Member, ann: Member) -> None:
        self.make, self.server, self.agent, self.ann = make, server, agent, ann
        self.bob = server.register(f"bob{next(numbers)}")
        self.direct = ann.make_room(agent.id)
        self.room = ann.make_room(agent.id, self.bob.id, name="Team")
        for room in (self.direct, self.room):
            agent.join(room)
        self.bob.join(self.room)

    def adapter(self, **settings: Any) -> Any:
        return self.make("matrix", **{"homeserver": self.server.url, "access_token": self.agent.token, **settings})

    def run(self, steps: Callable[[Any, Inbox], Any], **settings: Any) -> Any:
        """Take steps with an adapter that follows the stream of events."""

        async def run() -> Any:
            adapter = self.adapter(**settings)
            inbox = Inbox(adapter)
            assert await adapter.connect(is_reconnect=False), adapter.fatal_error_message
            try:
                await self.follows(adapter)
                return await asyncio.wait_for(steps(adapter, inbox), WAIT_S)
            finally:
                await adapter.disconnect()

        return asyncio.run(run())

    async def follows(self, adapter: Any) -> None:
        """Wait until it has seen where the stream stands."""
        async with asyncio.timeout(WAIT_S):
            while not await do(list, adapter._state.path.parent.glob("matrix_*.json")):
                pass

    def said(self, room: str) -> list[dict[str, Any]]:
        return [e for e in self.ann.timeline(room) if e["sender"] == self.agent.id]

    def messages(self, room: str) -> list[str]:
        return [e["content"]["body"] for e in self.said(room) if e["type"] == "m.room.message" and e["content"]]


@pytest.fixture
def here(make: Make, server: Synapse, agent: Member, ann: Member) -> Here:
    return Here(make, server, agent, ann)


class MatrixBench:
    """Ann writes into the room."""

    def __init__(self, here: Here) -> None:
        self.here = here
        self.adapter = here.adapter(auto_thread=False, reactions=False)

    async def arrive(self) -> None:
        self.taken = Inbox(self.adapter, through=True)
        await self.here.follows(self.adapter)

    async def write(self, chat_id: str, user_id: str, text: str) -> None:
        await do(self.here.ann.say, self.of(chat_id), text)
        await self.taken.next()

    def of(self, chat_id: str) -> str:
        return {"room": self.here.room, "direct": self.here.direct}.get(chat_id, chat_id)

    async def leave(self) -> None: ...

    def sent(self) -> list[tuple[str, str]]:
        return [(room, text) for room in (self.here.room, self.here.direct) for text in self.here.messages(room)]


class TestAtSynapse(PlatformSuite):
    @pytest.fixture
    def bench(self, here: Here) -> Bench:
        self.ROOM, self.OTHER_ROOM, self.PERSON = here.room, here.direct, here.ann.id
        return MatrixBench(here)


def test_messages_say_who_wrote_where_and_whether_it_was_to_the_agent(here: Here) -> None:
    async def steps(adapter: Any, inbox: Inbox) -> None:
        ann, me = here.ann, here.agent.id
        name = me[1:].partition(":")[0]
        await do(ann.say, here.direct, "hello")
        dm = await inbox.next()
        assert (dm.text, dm.source.chat_id, dm.source.chat_type) == ("hello", here.direct, "dm")
        assert (dm.source.user_id, dm.source.thread_id) == (ann.id, None)

        first = await do(ann.say, here.room, f"{name}: what now?")
        await do(ann.say, here.room, "nothing for you")
        await do(ann.say, here.room, "!status all", **{"m.mentions": {"user_ids": [me]}})
        await do(ann.send, here.room, {"msgtype": "m.notice", "body": "I am a bot"})
        await do(ann.send, here.room, {"msgtype": "m.emote", "body": "waves"})
        said, other, command, emote = [await inbox.next() for _ in range(4)]
        assert (said.text, said.metadata["addressed"], said.message_id) == ("what now?", True, first)
        assert (said.source.chat_type, said.source.chat_name, said.source.thread_id) == ("group", "Team", first)
        assert (other.text, other.metadata["addressed"]) == ("nothing for you", False)
        assert (command.get_command(), command.metadata["addressed"]) == ("status", True)
        assert emote.text == f"* {ann.id} waves"

        answer = await adapter.send(here.room, "an answer", first, {"thread_id": first})
        in_thread = {"rel_type": "m.thread", "event_id": first, "m.in_reply_to": {"event_id": answer.message_id}}
        await do(ann.say, here.room, "why?", **{"m.relates_to": in_thread})
        new = {"msgtype": "m.text", "body": "changed"}
        changed = {"m.new_content": new, "m.relates_to": {"rel_type": "m.replace", "event_id": first}}
        await do(ann.say, here.room, "* changed", **changed)
        await do(ann.say, here.room, "last")
        reply, last = await inbox.next(), await inbox.next()
        assert (reply.source.thread_id, reply.reply_to_text, reply.reply_to_is_own_message) == (
            first,
            "an answer",
            True,
        )
        assert last.text == "last"  # the change of a message is no message

    here.run(steps)


def test_what_came_during_downtime_is_read_once_however_much_it_was(here: Here) -> None:
    here.ann.say(here.direct, "old")

    async def first(adapter: Any, inbox: Inbox) -> None:
        await do(here.ann.say, here.direct, "one")
        assert (await inbox.next()).text == "one"

    async def second(adapter: Any, inbox: Inbox) -> None:
        assert [(await inbox.next()).text for _ in range(130)] == [f"missed {n}" for n in range(130)]
        await do(here.ann.say, here.direct, "two")
        assert (await inbox.next()).text == "two"

    here.run(first)
    for number in range(130):
        here.ann.say(here.direct, f"missed {number}")
    here.run(second)


async def test_an_event_that_could_not_be_taken_in_comes_again(here: Here) -> None:
    async def run() -> None:
        adapter, lost = here.adapter(), asyncio.Event()
        adapter.set_fatal_error_handler(lambda adapter: lost.set())

        async def fails(event: Any) -> None:
            raise OSError("disk full")

        adapter.handle_message = fails
        assert await adapter.connect()
        await here.follows(adapter)
        await do(here.ann.say, here.direct, "important")
        await asyncio.wait_for(lost.wait(), WAIT_S)
        assert adapter.fatal_error_retryable
        await adapter.disconnect()

    async def again(adapter: Any, inbox: Inbox) -> None:
        assert (await inbox.next()).text == "important"

    await run()
    await asyncio.to_thread(here.run, again)


def test_an_event_that_nobody_can_read_stops_none_behind_it(here: Here) -> None:
    async def steps(adapter: Any, inbox: Inbox) -> None:
        await do(here.ann.send, here.direct, {"msgtype": "m.location", "body": "here", "geo_uri": 5})
        await do(here.ann.say, here.direct, "still there?")
        assert (await inbox.next()).text == "still there?"

    here.run(steps)


def test_the_same_delivery_is_one_message_however_often_it_is_sent(here: Here) -> None:
    async def steps(adapter: Any, inbox: Inbox) -> list[str]:
        return [(await adapter.send(here.room, "x", None, {"delivery_key": key})).message_id for key in "aab"]

    one, same, other = here.run(steps)

    assert one == same != other
    assert here.messages(here.room) == ["x", "x"]


SHOWN = (
    '<h1>Plan</h1><strong>bold</strong> <code>a&lt;b</code> <a href="https://e.org/?a=1&amp;b=2">x</a> bad'
    '<ul><li>one</li><li><em>two</em></li></ul><ol start="3"><li>c</li></ol>'
    '<pre><code class="language-py">1 &lt; 2\n</code></pre>'
)


def test_markdown_is_shown_and_threads_replies_edits_and_deletions_work(here: Here) -> None:
    text = "# Plan\n**bold** `a<b` [x](https://e.org/?a=1&b=2) [bad](javascript:x)\n- one\n- *two*\n\n3. c"
    text += "\n```py\n1 < 2\n```"

    async def steps(adapter: Any, inbox: Inbox) -> None:
        asked = await do(here.ann.say, here.room, "hello")
        sent = await adapter.send(here.room, text, asked, {"thread_id": asked})
        assert (await adapter.edit_message(here.room, sent.message_id, "now **this**", finalize=True)).success
        gone = await adapter.send(here.room, "plain <b>")
        assert await adapter.delete_message(here.room, gone.message_id)
        await adapter.send_typing(here.room)
        await adapter.stop_typing(here.room)
        assert await adapter.get_chat_info(here.room) == {"name": "Team", "type": "group"}

    here.run(steps)
    sent, edit, gone, *_ = [e["content"] for e in here.said(here.room) if e["type"] == "m.room.message"]
    assert sent["formatted_body"] == SHOWN
    assert (sent["body"], sent["m.relates_to"]["rel_type"]) == (text, "m.thread")
    assert edit["m.new_content"]["formatted_body"] == "now <strong>this</strong>"
    assert gone == {}  # redacted


def test_files_go_both_ways(here: Here, tmp_path: Path) -> None:
    (tmp_path / "größe.png").write_bytes(PNG)

    async def steps(adapter: Any, inbox: Inbox) -> None:
        picture = await do(here.ann.upload, PNG, "pic.png", "image/png")
        info = {"mimetype": "image/png"}
        content = {"msgtype": "m.image", "body": "look", "filename": "pic.png", "url": picture, "info": info}
        await do(here.ann.send, here.direct, content)
        voice = {"msgtype": "m.audio", "body": "Voice message", "url": picture, "org.matrix.msc3245.voice": {}}
        await do(here.ann.send, here.direct, voice)
        await do(here.ann.send, here.direct, {"msgtype": "m.file", "body": "gone.pdf", "url": "mxc://test/gone"})
        look, spoken, gone = [await inbox.next() for _ in range(3)]
        assert (look.text, look.message_type, look.media_types) == ("look", MessageType.PHOTO, ["image/png"])
        assert await do(Path(look.media_urls[0]).read_bytes) == PNG
        assert (spoken.text, spoken.message_type) == ("", MessageType.VOICE)
        assert gone.text.startswith("[The file gone.pdf could not be fetched")

        path = str(tmp_path / "größe.png")
        for send in (adapter.send_image_file, adapter.send_document, adapter.send_video, adapter.send_voice):
            assert (await send(here.room, path, "a caption")).success

    here.run(steps)
    sent = [e["content"] for e in here.said(here.room) if e["type"] == "m.room.message"]
    assert [one["msgtype"] for one in sent] == ["m.image", "m.file", "m.video", "m.audio"]
    assert (sent[0]["filename"], sent[0]["body"], sent[0]["info"]["size"]) == ("größe.png", "a caption", len(PNG))
    assert here.ann.download(sent[0]["url"]) == PNG


def test_a_reaction_to_a_question_is_what_its_sender_would_have_written(here: Here) -> None:
    async def steps(adapter: Any, inbox: Inbox) -> None:
        begun = await do(here.ann.say, here.room, "go")
        await inbox.next()
        thread = {"thread_id": begun}
        asked = await adapter.send_exec_approval(
            here.room, "rm -r x", "key", "delete", thread, allow_permanent=False, approval_id="q1"
        )
        relates = {"rel_type": "m.annotation", "event_id": asked.message_id}
        for key in ("♾️", "👍", "🕐"):
            await do(here.ann.send, here.room, {"m.relates_to": {**relates, "key": key}}, "m.reaction")
        event = await inbox.next()
        assert (event.text, event.source.user_id, event.source.thread_id) == ("/approve session q1", here.ann.id, begun)
        assert event.metadata["addressed"]

        asked = await adapter.send_clarify(here.direct, "Which?", ["first", "second"], "c", "key")
        two = {"rel_type": "m.annotation", "event_id": asked.message_id, "key": "2\ufe0f\u20e3"}
        await do(here.ann.send, here.direct, {"m.relates_to": two}, "m.reaction")
        assert (await inbox.next()).text == "second"

    here.run(steps)
    offered = [e["content"]["m.relates_to"]["key"] for e in here.said(here.room) if e["type"] == "m.reaction"]
    assert offered == ["✅", "🕐", "⛔"]


def test_reactions_show_the_work(here: Here) -> None:
    async def steps(adapter: Any, inbox: Inbox) -> None:
        await do(here.ann.say, here.direct, "hello")
        event = await inbox.next()
        await adapter.on_processing_start(event)
        await adapter.on_processing_complete(event, ProcessingOutcome.SUCCESS)

    here.run(steps)
    reactions = [e["content"] for e in here.said(here.direct) if e["type"] == "m.reaction"]
    assert [one.get("m.relates_to", {}).get("key") for one in reactions] == [None, "✅"]


def test_an_invitation_is_taken_where_the_config_does_not_say_otherwise(here: Here) -> None:
    async def steps(adapter: Any, inbox: Inbox) -> None:
        room = await do(here.ann.make_room, here.agent.id)
        async with asyncio.timeout(WAIT_S):
            while here.agent.id not in await do(here.ann.members, room):
                pass
        await do(here.ann.say, room, "welcome")
        event = await inbox.next()
        assert (event.text, event.source.chat_id) == ("welcome", room)

    async def not_now(adapter: Any, inbox: Inbox) -> None:
        room = await do(here.ann.make_room, here.agent.id)
        await do(here.ann.say, here.direct, "and then")
        assert (await inbox.next()).text == "and then"
        assert here.agent.id not in await do(here.ann.members, room)

    here.run(steps)
    here.run(not_now, auto_join=False)


def test_in_an_encrypted_room_nothing_is_said_in_the_clear(here: Here) -> None:
    async def steps(adapter: Any, inbox: Inbox) -> Any:
        state = {"algorithm": "m.megolm.v1.aes-sha2"}
        await do(here.ann.call, "PUT", "rooms", here.direct, "state", "m.room.encryption", "", body=state)
        content = {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "x", "session_id": "s"}
        await do(here.ann.send, here.direct, content, "m.room.encrypted")
        await do(here.ann.send, here.direct, content, "m.room.encrypted")
        async with asyncio.timeout(WAIT_S):
            while not await do(here.messages, here.direct):
                pass
        return await adapter.send(here.direct, "a secret")

    result = here.run(steps)

    assert (result.success, result.error_kind) == (False, "forbidden")
    assert here.messages(here.direct) == [
        "I cannot read encrypted messages. Please write to me in a room without encryption."
    ]


async def test_a_password_makes_one_device_and_a_wrong_one_ends_it_for_good(here: Here) -> None:
    async def run(**settings: Any) -> Any:
        adapter = here.adapter(access_token="", user_id=here.agent.id, **settings)
        connected = await adapter.connect()
        await adapter.disconnect()
        return connected, adapter.fatal_error_retryable, adapter.fatal_error_message

    before = len(here.agent.call("GET", "devices")["devices"])
    assert (await run(password=PASSWORD))[0] is True
    assert (await run(password=PASSWORD))[0] is True
    assert len(here.agent.call("GET", "devices")["devices"]) == before + 1
    connected, again, why = await run(password="a wrong one")
    assert (connected, again, "a wrong one" in why) == (False, False, False)
    assert (await run(password=PASSWORD, homeserver="http://127.0.0.1:1"))[:2] == (False, True)


def test_failures_say_what_to_do_next(here: Here) -> None:
    lost = asyncio.Event()

    async def steps(adapter: Any, inbox: Inbox) -> None:
        adapter.set_fatal_error_handler(lambda adapter: lost.set())
        nowhere = await adapter.send("!nowhere:test", "x")
        assert nowhere.error_kind == "forbidden"  # whether it is there is not told
        assert (await adapter.send("#nowhere:test", "x")).error_kind == "not_found"
        assert (await adapter.send(here.room, "x" * 70_000)).error_kind == "too_long"
        await do(here.ann.call, "PUT", "directory", "room", f"#a{here.agent.id[1:]}", body={"room_id": here.room})
        assert (await adapter.send(f"#a{here.agent.id[1:]}", "by its alias")).success
        await do(here.agent.call, "POST", "logout", "all", body={})
        await asyncio.wait_for(lost.wait(), WAIT_S)
        assert (adapter.fatal_error_code, adapter.fatal_error_retryable) == ("refused", False)

    here.run(steps)
    assert here.messages(here.room) == ["by its alias"]
