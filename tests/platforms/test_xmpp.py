"""XMPP: the bundled platform at a real prosody, over TLS (docs/operator/platforms/xmpp.md)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("slixmpp", reason="the extra `xmpp` is not installed (requirements/dev.txt has it)")

from contracts.platform_suite import Bench, PlatformSuite
from hermes_agent.adapters.events import MessageType, ProcessingOutcome
from peers.install import NotInstalled
from peers.xmpp import DOMAIN, PASSWORD, ROOMS, Person, XmppServer, prosody
from platforms.conftest import PNG, Inbox, Make

WAIT_S = 100.0
ME, ANN, BOB = (f"{name}@{DOMAIN}" for name in ("hermes", "ann", "bob"))
numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[XmppServer]:
    try:
        with prosody(tmp_path_factory.mktemp("prosody")) as running:
            yield running
    except NotInstalled as exc:
        pytest.skip(str(exc))


@pytest.fixture
def room() -> str:
    return f"team{next(numbers)}@{ROOMS}"


@pytest.fixture
def bot(make: Make, server: XmppServer, room: str) -> Any:
    return made(make, server, rooms=[room])


def made(make: Make, server: XmppServer, **more: Any) -> Any:
    settings = {
        "jid": ME,
        "password": PASSWORD,
        "host": server.host,
        "port": server.port,
        "ca_file": server.certificate,
    }
    return make("xmpp", **{**settings, **more})


class XmppBench:
    """Ann, who writes directly."""

    def __init__(self, adapter: Any, server: XmppServer) -> None:
        self.adapter, self._server = adapter, server
        self._said: list[tuple[str, str]] = []

    async def arrive(self) -> None:
        self.taken = Inbox(self.adapter, through=True)
        self.people = [await Person(name).come(self._server) for name in ("ann", "bob")]

    async def write(self, chat_id: str, user_id: str, text: str) -> None:
        self.people[0].say(ME, text)
        await self.taken.next()

    async def leave(self) -> None:
        for person in self.people:
            end = person.say(person.jid, "the end")  # to oneself: behind all that has come
            await person.hear(end)
            self._said += [(person.jid, str(m["body"])) for m in person.heard if m["body"]]
            await person.leave()

    def sent(self) -> list[tuple[str, str]]:
        return self._said


class TestAtAProsody(PlatformSuite):
    ROOM, OTHER_ROOM, PERSON = ANN, BOB, ANN

    @pytest.fixture
    def bench(self, make: Make, server: XmppServer) -> Bench:
        return XmppBench(made(make, server), server)


async def at(bot: Any, server: XmppServer, steps: Callable[..., Any], *rooms: str) -> Any:
    async def run() -> Any:
        inbox = Inbox(bot)
        ann = await Person("ann").come(server, *rooms)
        assert await bot.connect(is_reconnect=False), bot.fatal_error_message
        try:
            return await asyncio.wait_for(steps(bot, inbox, ann), WAIT_S)
        finally:
            await bot.disconnect()
            await ann.leave()

    return await run()


async def test_messages_say_who_wrote_where_and_whether_it_was_to_the_agent(
    bot: Any, server: XmppServer, room: str
) -> None:
    async def steps(bot: Any, inbox: Inbox, ann: Person) -> None:
        ann.say(ME, "hello", identity="a1")
        dm = await inbox.next()
        assert (dm.text, dm.source.chat_id, dm.source.chat_type, dm.source.user_id) == ("hello", ANN, "dm", ANN)
        assert dm.source.user_name == "ann"

        ann.say(room, "hermes: what now?")
        ann.say(room, "not for you")
        ann.say(room, "!status all")
        said, other, command = [await inbox.next() for _ in range(3)]
        assert (said.text, said.metadata["addressed"], said.source.chat_type) == ("what now?", True, "group")
        assert (said.source.chat_id, said.source.user_id, said.source.user_name) == (room, ANN, "ann")
        assert (other.text, other.metadata["addressed"]) == ("not for you", False)
        assert command.text == "/status all"

        ann.say(f"{room}/hermes", "in private", kind="chat")
        private = await inbox.next()
        assert (private.source.chat_id, private.source.chat_type) == (f"{room}/ann", "dm")
        assert (private.source.user_id, private.text) == (ANN, "in private")

    await at(bot, server, steps, room)


async def test_what_is_no_message_of_somebody_elses_is_passed_over_and_doubles_too(
    bot: Any, server: XmppServer, room: str
) -> None:
    async def steps(bot: Any, inbox: Inbox, ann: Person) -> None:
        origin = "<origin-id xmlns='urn:xmpp:sid:0' id='once'/>"
        ann.say(ME, "first", origin)
        ann.say(ME, "first", origin)
        ann.say(ME, "frist", "<replace xmlns='urn:xmpp:message-correct:0' id='x'/>")
        ann.say(ME, "", "<composing xmlns='http://jabber.org/protocol/chatstates'/>")
        assert (await bot.send(room, "my own")).success
        ann.say(ME, "last")
        assert [(await inbox.next()).text for _ in range(2)] == ["first", "last"]
        assert inbox.is_empty

    await at(bot, server, steps, room)


async def test_a_time_that_cannot_be_is_no_reason_to_lose_a_message(bot: Any, server: XmppServer) -> None:
    async def steps(bot: Any, inbox: Inbox, ann: Person) -> None:
        for year in ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59Z"):
            ann.say(ME, year, f"<delay xmlns='urn:xmpp:delay' stamp='{year}'/>")
            event = await inbox.next()
            assert (event.text, event.timestamp <= datetime.now(UTC)) == (year, True)

    await at(bot, server, steps)


async def test_a_receipt_is_given_once_a_message_was_taken_in(bot: Any, server: XmppServer, room: str) -> None:
    async def steps(bot: Any, inbox: Inbox, ann: Person) -> None:
        ann.say(ME, "hello", "<request xmlns='urn:xmpp:receipts'/>", identity="r1")
        await ann.hear("<received")
        assert not inbox.is_empty

    await at(bot, server, steps)


async def test_a_message_that_could_not_be_stored_is_not_acknowledged_and_comes_again(
    make: Make, server: XmppServer
) -> None:
    bot, told = made(make, server), asyncio.Event()

    async def full(event: Any) -> None:
        raise OSError("disk full")

    async def note(adapter: Any) -> None:
        told.set()

    bot.handle_message = full
    bot.set_fatal_error_handler(note)
    ann = await Person("ann").come(server)
    assert await bot.connect()
    ann.say(ME, "do not lose me")
    await asyncio.wait_for(told.wait(), WAIT_S)
    assert (bot.fatal_error_code, bot.fatal_error_retryable) == ("not_stored", True)
    bot._stream._closing = True
    bot._stream.client.abort()  # as if the process had been killed: the server keeps the stream for minutes
    await bot.disconnect()

    again = made(make, server)
    inbox = Inbox(again)
    assert await again.connect(is_reconnect=True)
    assert (await inbox.next()).text == "do not lose me"
    await again.disconnect()
    await ann.leave()


async def test_what_is_being_taken_in_at_the_end_is_acknowledged_and_does_not_come_again(
    make: Make, server: XmppServer
) -> None:
    bot, begun, free = made(make, server), asyncio.Event(), asyncio.Event()

    async def slow(event: Any) -> None:
        begun.set()
        await free.wait()

    bot.handle_message = slow
    ann = await Person("ann").come(server)
    assert await bot.connect()
    ann.say(ME, "once")
    await asyncio.wait_for(begun.wait(), WAIT_S)
    asyncio.get_running_loop().call_later(0.5, free.set)
    await bot.disconnect()

    again = made(make, server)
    inbox = Inbox(again)
    assert await again.connect(is_reconnect=True)
    ann.say(ME, "another")
    assert (await inbox.next()).text == "another"
    await again.disconnect()
    await ann.leave()


async def test_while_nothing_can_be_taken_in_the_server_keeps_what_comes(bot: Any, server: XmppServer) -> None:
    said = [f"word {number} {'x' * 2000}" for number in range(1500)]

    async def steps(bot: Any, inbox: Inbox, ann: Person) -> None:
        free, taken = asyncio.Event(), list[str]()
        all_of_them = asyncio.Event()

        async def waits(event: Any) -> None:
            await free.wait()
            taken.append(event.text)
            if len(taken) >= len(said):
                all_of_them.set()

        bot.handle_message = waits
        for text in said:
            ann.say(ME, text)
        while not bot._stream.is_held:  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0.01)
        assert bot._stream._arrived.qsize() < len(said)
        free.set()
        await all_of_them.wait()
        assert taken == said
        assert not bot._stream.is_held

    await at(bot, server, steps)


async def test_what_is_said_while_it_is_away_is_heard_when_it_comes_back(
    make: Make, server: XmppServer, room: str
) -> None:
    ann = await Person("ann").come(server, room)
    bot = made(make, server, rooms=[room])
    inbox = Inbox(bot)
    assert await bot.connect()
    ann.say(room, "before")
    assert (await inbox.next()).text == "before"
    await bot.disconnect()

    ann.say(room, "hermes, where are you?")
    await ann.hear("where are you")
    ann.say(ME, "hello?")

    again = made(make, server, rooms=[room])
    inbox = Inbox(again)
    assert await again.connect(is_reconnect=True)
    texts = {(await inbox.next()).text for _ in range(2)}
    while "hello?" not in texts or "where are you?" not in texts:
        texts.add((await inbox.next()).text)  # the last one of before may come again: the inbox knows it
    await again.disconnect()
    await ann.leave()


async def test_a_stream_that_breaks_is_taken_up_again_with_what_was_on_its_way(
    bot: Any, server: XmppServer, room: str
) -> None:
    async def steps(bot: Any, inbox: Inbox, ann: Person) -> None:
        resumed = asyncio.get_running_loop().create_future()
        client = bot._stream.client
        client.add_event_handler("session_resumed", resumed.set_result, disposable=True)
        client.transport.abort()
        ann.say(ME, "while it was away")
        await resumed
        assert (await inbox.next()).text == "while it was away"
        ann.say(room, "hermes: still there?")
        assert (await inbox.next()).text == "still there?"
        assert (await bot.send(ANN, "yes")).success
        await ann.hear("yes")

    await at(bot, server, steps, room)


async def test_a_server_that_takes_connections_and_ends_them_is_left_in_peace_after_some_tries(
    make: Make, server: XmppServer
) -> None:
    async def run() -> None:
        count, broken, streams = 0, False, []

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(65536):
                writer.write(data)

        async def between(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal count
            count += 1
            streams.append(writer)
            if not broken:
                there, out = await asyncio.open_connection(server.host, server.port)
                streams.append(out)
                await asyncio.gather(pass_on(reader, out), pass_on(there, writer), return_exceptions=True)
            writer.transport.abort()

        told = asyncio.Event()

        async def note(adapter: Any) -> None:
            told.set()

        door = await asyncio.start_server(between, "127.0.0.1")
        bot = made(make, server, port=door.sockets[0].getsockname()[1])
        bot.set_fatal_error_handler(note)
        assert await bot.connect(), bot.fatal_error_message
        count, broken = 0, True
        for stream in streams:
            stream.transport.abort()
        await asyncio.wait_for(told.wait(), WAIT_S)
        assert (bot.fatal_error_code, bot.fatal_error_retryable, 1 < count < 6) == ("not_connected", True, True)
        await bot.disconnect()
        door.close()

    await run()


async def test_messages_are_styled_edited_taken_back_and_answer_their_question(
    bot: Any, server: XmppServer, room: str
) -> None:
    async def steps(bot: Any, inbox: Inbox, ann: Person) -> None:
        ann.say(room, "hermes: go")
        asked = await inbox.next()
        sent = await bot.send(room, "**yes**, see [this](https://e.org)", asked.message_id)
        shown = await ann.hear("https://e.org")
        assert shown["body"] == "*yes*, see this (https://e.org)"
        assert f'id="{asked.message_id}"' in str(shown), "it names the message that it answers"
        assert (await bot.edit_message(room, sent.message_id, "no", finalize=True)).message_id == sent.message_id
        edited = await ann.hear("urn:xmpp:message-correct:0")
        assert (edited["body"], f'id="{sent.message_id}"' in str(edited)) == ("no", True)
        assert await bot.delete_message(room, sent.message_id)
        await ann.hear("urn:xmpp:message-retract:1")
        reply = f"<reply xmlns='urn:xmpp:reply:0' id='{sent.message_id}' to='{room}/hermes'/>"
        quote = "<fallback xmlns='urn:xmpp:fallback:0' for='urn:xmpp:reply:0'><body start='0' end='5'/></fallback>"
        ann.say(room, "> no\nwhy?", reply, quote)
        answer = await inbox.next()
        assert (answer.text, answer.reply_to_text, answer.reply_to_is_own_message) == ("why?", "no", True)

    await at(bot, server, steps, room)


async def test_typing_is_shown_once_and_ends_with_the_message(bot: Any, server: XmppServer) -> None:
    async def steps(bot: Any, inbox: Inbox, ann: Person) -> None:
        ann.say(ME, "hello")
        await inbox.next()
        await bot.send_typing(ANN)
        await bot.send_typing(ANN)
        await bot.send(ANN, "hi")
        await bot.stop_typing(ANN)
        await bot.send_typing(ANN)
        await bot.stop_typing(ANN)
        await bot.send(ANN, "bye")
        await ann.hear("bye")
        states = [name for m in ann.heard for name in ("composing", "active") if f"<{name} " in str(m)]
        assert states == ["composing", "active", "composing", "active"]

    await at(bot, server, steps)


async def test_a_reaction_is_what_its_giver_would_have_written(bot: Any, server: XmppServer, room: str) -> None:
    async def steps(bot: Any, inbox: Inbox, ann: Person) -> None:
        asked = await bot.send_exec_approval(ANN, "rm x", "k", "delete", allow_permanent=False, approval_id="q1")
        shown = await ann.hear("rm x")
        offered = await ann.hear("urn:xmpp:reactions:0")
        assert [emoji in str(offered) for emoji in "✅🕐⛔♾"] == [True, True, True, False]
        ann.say(ME, "", reaction(str(shown["id"]), "👍"))  # not one of them
        ann.say(ME, "", reaction(str(shown["id"]), "👍", "🕐"))
        event = await inbox.next()
        assert (event.text, event.source.user_id, asked.success) == ("/approve session q1", ANN, True)

        await bot.send_clarify(room, "Which?", ["the first", "the second"], "c", "k")
        shown = await ann.hear("Which?")
        given = shown.xml.find("{urn:xmpp:sid:0}stanza-id").get("id")
        ann.say(room, "", reaction(given, "2\ufe0f\u20e3"))
        event = await inbox.next()
        assert (event.text, event.metadata["addressed"], event.source.chat_id) == ("the second", True, room)

    await at(bot, server, steps, room)


def reaction(identity: str, *emojis: str) -> str:
    inner = "".join(f"<reaction>{emoji}</reaction>" for emoji in emojis)
    return f"<reactions xmlns='urn:xmpp:reactions:0' id='{identity}'>{inner}</reactions>"


async def test_reactions_show_the_work_where_they_are_wanted(make: Make, server: XmppServer) -> None:
    async def steps(bot: Any, inbox: Inbox, ann: Person) -> None:
        ann.say(ME, "hello", identity="mine")
        event = await inbox.next()
        await bot.on_processing_start(event)
        await bot.on_processing_complete(event, ProcessingOutcome.SUCCESS)
        for emoji in "👀✅":
            assert 'id="mine"' in str(await ann.hear(emoji))

    await at(made(make, server, reactions=True), server, steps)


async def test_files_go_both_ways(make: Make, server: XmppServer, tmp_path: Path) -> None:
    report = tmp_path / "report.csv"
    report.write_bytes(b"a,b\n")
    picture = tmp_path / "x.png"
    picture.write_bytes(PNG)
    large = tmp_path / "large.bin"
    large.write_bytes(bytes(1_000_001))

    async def steps(bot: Any, inbox: Inbox, ann: Person) -> None:
        sends = (bot.send_document, bot.send_image_file, bot.send_voice, bot.send_video)
        for send in sends:
            assert (await send(ANN, str(report), "the report")).success
        shown = [await ann.hear("report.csv") for _ in sends]
        address = shown[0].xml.findtext("{jabber:x:oob}x/{jabber:x:oob}url")
        assert shown[0]["body"] == address
        assert len([m for m in ann.heard if m["body"] == "the report"]) == 4
        assert (await bot.send_document(ANN, str(large), "too large")).success
        assert (await ann.hear("deliver the file"))["body"].startswith("too large")
        assert (await bot.send_document(ANN, "/nowhere/x")).error == "cannot read the file: No such file or directory"

        put = await bot._uploads.put(picture)
        ann.say(ME, put, f"<x xmlns='jabber:x:oob'><url>{put}</url></x>")
        event = await inbox.next()
        assert (event.text, event.message_type, event.media_types) == ("", MessageType.PHOTO, ["image/png"])
        assert await asyncio.to_thread(Path(event.media_urls[0]).read_bytes) == PNG
        ann.say(ME, "look", "<x xmlns='jabber:x:oob'><url>http://127.0.0.1:1/gone.ogg</url></x>")
        event = await inbox.next()
        assert event.text.startswith("look\n[The file gone.ogg could not be fetched: ")

    home = Path(make.host.home)  # type: ignore[attr-defined]
    (home / "config.yaml").write_text("security: {allow_private_urls: true}\n")
    await at(made(make, server), server, steps)


async def test_a_file_of_an_address_that_is_not_public_is_not_fetched(bot: Any, server: XmppServer) -> None:
    async def steps(bot: Any, inbox: Inbox, ann: Person) -> None:
        ann.say(ME, "", "<x xmlns='jabber:x:oob'><url>http://127.0.0.1:80/x.png</url></x>")
        assert "could not be fetched" in (await inbox.next()).text

    await at(bot, server, steps)


async def test_an_invitation_of_somebody_who_may_talk_to_it_is_followed_and_kept(
    make: Make, server: XmppServer
) -> None:
    place, other = f"new{next(numbers)}@{ROOMS}", f"not{next(numbers)}@{ROOMS}"

    def invites(room: str) -> str:
        return f"<x xmlns='jabber:x:conference' jid='{room}'/>"

    async def steps(bot: Any, inbox: Inbox, ann: Person) -> None:
        bob = await Person("bob").come(server, other)
        bob.say(ME, "", invites(other))
        ann.say(ME, "", invites(place))
        ann.say(ME, "and?")
        assert (await inbox.next()).text == "and?"
        assert await bot.get_chat_info(place) == {"name": place, "type": "group"}
        assert (place in bot._joined, other in bot._joined) == (True, False)
        await bob.leave()

    bot = made(make, server)
    bot.set_authorization_check(lambda user, chat_type, chat: user == ANN)
    await at(bot, server, steps, place)

    async def later(bot: Any, inbox: Inbox, ann: Person) -> None:
        ann.say(place, "hermes: again")
        while (await inbox.next()).text != "again":
            continue

    await at(made(make, server), server, later, place)


async def test_failures_say_what_to_do_next(bot: Any, server: XmppServer) -> None:
    async def steps(bot: Any, inbox: Inbox, ann: Person) -> None:
        nobody, broken = await bot.send(f"nobody@{DOMAIN}", "x"), await bot.send("@@", "x")
        assert (nobody.success, nobody.error_kind, broken.error_kind) == (False, "not_found", "not_found")
        await bot.disconnect()
        gone = await bot.send(ANN, "x")
        assert (gone.retryable, gone.error_kind) == (True, "transient")

    await at(bot, server, steps)


async def test_it_is_told_once_that_encrypted_messages_are_not_read(bot: Any, server: XmppServer) -> None:
    async def steps(bot: Any, inbox: Inbox, ann: Person) -> None:
        secret = "<encrypted xmlns='eu.siacs.conversations.axolotl'><payload>x</payload></encrypted>"
        ann.say(ME, "You received an encrypted message", secret)
        ann.say(ME, "You received an encrypted message", secret)
        ann.say(ME, "in the clear")
        assert (await inbox.next()).text == "in the clear"
        await ann.hear("I cannot read encrypted messages")
        assert not [m for m in ann.heard if "cannot read" in str(m)]

    await at(bot, server, steps)


async def test_a_stranger_who_encrypts_is_told_nothing(bot: Any, server: XmppServer) -> None:
    async def steps(bot: Any, inbox: Inbox, ann: Person) -> None:
        ann.say(ME, "secret", "<encrypted xmlns='eu.siacs.conversations.axolotl'><payload>x</payload></encrypted>")
        ann.say(ME, "in the clear")
        assert (await inbox.next()).text == "in the clear"
        assert (await bot.send(ANN, "an answer")).success
        await ann.hear("an answer")
        assert not [m for m in ann.heard if "cannot read" in str(m)]

    bot.set_authorization_check(lambda user, chat_type, chat: False)
    await at(bot, server, steps)


@pytest.mark.parametrize(
    ("settings", "code", "retryable"),
    [
        ({"password": "wrong"}, "wrong_password", False),
        ({"ca_file": ""}, "bad_certificate", True),
        ({"port": 1}, "not_connected", True),
        ({"tls": "perhaps"}, "bad_settings", False),
    ],
)
async def test_what_ends_it_at_once_is_named_and_no_secret_shown(
    make: Make, server: XmppServer, settings: dict[str, Any], code: str, retryable: bool
) -> None:
    bot = made(make, server, **settings)

    assert await bot.connect() is False

    assert (bot.fatal_error_code, bot.fatal_error_retryable) == (code, retryable)
    assert ME in bot.fatal_error_message
    assert "wrong" not in bot.fatal_error_message.replace("wrong_password", "")


async def test_a_text_is_sent_without_a_gateway_beside_one_that_runs(bot: Any, make: Make, server: XmppServer) -> None:
    async def steps(bot: Any, inbox: Inbox, ann: Person) -> None:
        entry = make.host.platforms.get("xmpp")  # type: ignore[attr-defined]
        sent = await entry.standalone_sender_fn(bot.config, ANN, "news")
        assert (sent["success"], sent["error"]) == (True, None)
        assert (await ann.hear("news"))["body"] == "news"
        ann.say(ME, "thanks")
        assert (await inbox.next()).text == "thanks"

    await at(bot, server, steps)
