"""IRC: the bundled platform at a real ngircd and a real InspIRCd (docs/operator/platforms/irc.md)."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

from contracts.platform_suite import Bench, PlatformSuite
from hermes_agent.adapters.events import call_send
from hermes_agent.adapters.text import is_timeout_error
from hermes_agent.config import load
from peers.install import NotInstalled
from peers.irc import IrcServer, Person, inspircd, ngircd
from peers.running import free_port
from platforms.conftest import WAIT_S, Inbox, Make

PLAIN = {"use_tls": False, "flood_interval": 0, "nickname": "hermes"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IrcServer]:
    try:
        with ngircd(tmp_path_factory.mktemp("irc")) as running:
            yield running
    except NotInstalled as exc:
        pytest.skip(str(exc))


@pytest.fixture(scope="module")
def modern(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IrcServer]:
    try:
        with inspircd(tmp_path_factory.mktemp("irc")) as running:
            yield running
    except NotInstalled as exc:
        pytest.skip(str(exc))


class IrcBench:
    """Ann, in two channels with the agent."""

    def __init__(self, adapter: Any, server: IrcServer) -> None:
        self.adapter, self.server = adapter, server
        self.ann = Person("ann")
        self.received: list[tuple[str, str]] = []

    async def arrive(self) -> None:
        await self.ann.come(self.server, "#room", "#other")
        self.ann.write("NAMES #room", "NAMES #other")
        await self.ann.hear(" 366 ann #other")
        self.taken = Inbox(self.adapter, through=True)

    async def write(self, chat_id: str, user_id: str, text: str) -> None:
        self.ann.say(chat_id, text)
        await self.taken.next()

    async def leave(self) -> None:
        for line in await self.ann.all_heard():
            head, _, text = line.partition(" :")
            if " PRIVMSG " in head:
                self.received.append((head.split()[2], text))
        await self.ann.leave()

    def sent(self) -> list[tuple[str, str]]:
        return self.received


class TestAtNgircd(PlatformSuite):
    ROOM, OTHER_ROOM, PERSON = "#room", "#other", "ann"

    @pytest.fixture
    def bench(self, make: Make, server: IrcServer) -> Bench:
        settings = {**PLAIN, "server": server.host, "port": server.port, "channel": ["#room", "#other"]}
        return IrcBench(make("irc", **settings, require_mention=False), server)


def at(server: IrcServer, make: Make, steps: Callable[[Any, Person], Any], **settings: Any) -> Any:
    """Take steps with a connected adapter in #room and with Ann, who is there too."""

    async def run() -> Any:
        adapter = make("irc", **{**PLAIN, "server": server.host, "port": server.port, "channel": "#room", **settings})
        ann = await Person("ann").come(server, "#room")
        try:
            assert await adapter.connect(is_reconnect=False), adapter.fatal_error_message
            await ann.hear("JOIN :#room")
            return await asyncio.wait_for(steps(adapter, ann), WAIT_S)
        finally:
            await adapter.disconnect()
            await ann.leave()

    return asyncio.run(run())


def test_in_a_channel_it_hears_what_is_said_to_it_and_privately_all(make: Make, server: IrcServer) -> None:
    async def steps(adapter: Any, ann: Person) -> None:
        inbox = Inbox(adapter)
        for text in (
            "hello all",
            "hermes: what is 2+2?",
            "HERMES, and 3?",
            "hermesian is a word",
            "ask hermes about it",
        ):
            ann.say("#Room", text)
        ann.say("hermes", "!status please")
        ann.say("hermes", "\x01ACTION waves\x01")
        ann.say("hermes", "\x02bold\x02 \x0304,01red\x03 plain")
        events = [await inbox.next() for _ in range(6)]

        assert [event.text for event in events] == [
            "what is 2+2?", "and 3?", "ask hermes about it", "/status please", "* ann waves", "bold red plain",
        ]  # fmt: skip
        group, dm = events[0].source, events[3].source
        assert (group.chat_id, group.chat_type, group.user_id, group.user_name) == ("#room", "group", "ann", "ann")
        assert (dm.chat_id, dm.chat_type, dm.user_id) == ("ann", "dm", "ann")

    at(server, make, steps)


def test_a_channel_that_may_be_answered_freely_needs_no_mention(make: Make, server: IrcServer) -> None:
    async def steps(adapter: Any, ann: Person) -> None:
        inbox = Inbox(adapter)
        ann.say("#room", "hello all")
        assert (await inbox.next()).text == "hello all"

    at(server, make, steps, free_response_channels=["#Room"])


def test_long_lines_are_cut_by_bytes_at_words_and_none_is_lost(make: Make, server: IrcServer) -> None:
    words = [f"größe{number}€" for number in range(150)]
    text = " ".join(words) + "\n\n" + "ü" * 700

    async def steps(adapter: Any, ann: Person) -> list[str]:
        assert (await adapter.send("#room", text)).success
        return [line for line in await ann.all_heard() if "PRIVMSG" in line]

    heard = at(server, make, steps)

    assert max(len(line.encode()) for line in heard) + 2 <= 512
    assert sum(len(line.encode()) > 400 for line in heard) >= 4  # few lines, not many short ones
    said = [line.partition(" PRIVMSG #room :")[2] for line in heard]
    assert " ".join(said).split()[:150] == words
    assert "".join(" ".join(said).split()[150:]) == "ü" * 700


def test_of_very_many_short_lines_several_go_out_as_one(make: Make, server: IrcServer) -> None:
    async def steps(adapter: Any, ann: Person) -> list[str]:
        assert (await adapter.send("#room", "\n".join(f"line {n}" for n in range(300)))).success
        return [line.partition(" PRIVMSG #room :")[2] for line in await ann.all_heard() if "PRIVMSG" in line]

    heard = at(server, make, steps)

    assert len(heard) < 20
    assert " ⏎ ".join(heard).split(" ⏎ ") == [f"line {n}" for n in range(300)]


def test_a_text_cannot_smuggle_a_command(make: Make, server: IrcServer) -> None:
    async def steps(adapter: Any, ann: Person) -> tuple[list[str], list[Any]]:
        assert (await adapter.send("#room", "one\r\nQUIT :two\x00\x01three")).success
        bad = [await adapter.send(chat, "x") for chat in ("#room x", "#room\r\nQUIT", "ann,#room", ":ann", "")]
        return [line for line in await ann.all_heard() if "PRIVMSG" in line], bad

    heard, bad = at(server, make, steps)

    assert [line.partition(" PRIVMSG #room :")[2] for line in heard] == ["one", "QUIT :twothree"]
    assert {result.error_kind for result in bad} == {"not_found"}


def test_a_message_is_sent_when_the_server_has_it_and_failed_when_it_says_so(make: Make, server: IrcServer) -> None:
    async def steps(adapter: Any, ann: Person) -> list[Any]:
        ann.write("MODE #room +m")
        await ann.hear("MODE #room +m")
        results = [await adapter.send(chat, "hello") for chat in ("ann", "nobody", "#room")]
        assert "PRIVMSG hermes" not in " ".join(await ann.all_heard())
        return results

    good, nobody, moderated = at(server, make, steps)

    assert (good.success, good.error) == (True, None)
    assert (nobody.success, nobody.error_kind, nobody.retryable) == (False, "not_found", False)
    assert "401" in nobody.error
    assert (moderated.success, moderated.error_kind, moderated.retryable) == (False, "forbidden", False)


def test_lines_go_out_in_the_server_s_pace_and_none_is_lost(make: Make, server: IrcServer) -> None:
    async def steps(adapter: Any, ann: Person) -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        result = await adapter.send("#room", "\n".join(f"line {n}" for n in range(6)))
        assert result.success
        return loop.time() - began

    assert at(server, make, steps, flood_burst=3, flood_interval=0.1) >= 0.3  # three at once, three that waited


def test_what_waits_for_the_server_s_pace_has_not_begun_and_is_not_sent_once_the_connection_ends(
    make: Make, server: IrcServer
) -> None:
    begun: list[str] = []

    async def steps(adapter: Any, ann: Person) -> Any:
        def sent(text: str) -> Any:
            async def begin() -> None:
                begun.append(text)

            return asyncio.create_task(adapter.send("#room", text, metadata={"begin_send": begin}))

        assert (await sent("first")).success
        second = sent("second")
        await ann.hear("first")
        await asyncio.sleep(0.05)  # for the second to come to where it waits
        assert begun == ["first"]
        await adapter.disconnect()
        result = await second
        assert not any("second" in line for line in await ann.all_heard())
        return result

    result = at(server, make, steps, flood_burst=1, flood_interval=1.0)
    assert (result.success, result.retryable, result.error) == (False, True, "not connected")


def test_nothing_is_sent_whose_beginning_could_not_be_noted(make: Make, server: IrcServer) -> None:
    async def steps(adapter: Any, ann: Person) -> list[str]:
        async def begin() -> None:
            raise LookupError("another daemon has taken over")

        with pytest.raises(LookupError):
            await adapter.send("#room", "unheard", metadata={"begin_send": begin})
        assert (await adapter.send("#room", "heard")).success
        await ann.hear("heard")
        return await ann.all_heard()

    assert not any("unheard" in line for line in at(server, make, steps))


async def test_the_nick_is_taken_back_as_soon_as_it_is_free(make: Make, server: IrcServer) -> None:
    squatter = await Person("hermes").come(server)
    ann = await Person("ann").come(server, "#room", "#watch")
    adapter = make("irc", **PLAIN, server=server.host, port=server.port, channel=["#room", "#watch"])
    try:
        assert await adapter.connect()
        await ann.hear(":hermes_!")
        squatter.write("JOIN #watch")
        await ann.hear(":hermes!")
        squatter.write("QUIT")
        await ann.hear("NICK :hermes")
        inbox = Inbox(adapter)
        ann.say("#room", "hermes: hello")
        assert (await inbox.next()).text == "hello"
    finally:
        await adapter.disconnect()
        await ann.leave()


def test_after_a_kick_it_comes_back(make: Make, server: IrcServer) -> None:
    async def steps(adapter: Any, ann: Person) -> None:
        ann.write("KICK #room hermes :out")
        await ann.hear("KICK #room hermes")
        await ann.hear("JOIN :#room")

    at(server, make, steps, ping_interval=0.2)


def test_clients_questions_are_answered_and_notices_never(make: Make, server: IrcServer) -> None:
    async def steps(adapter: Any, ann: Person) -> None:
        inbox = Inbox(adapter)
        ann.write("NOTICE hermes :I am a machine, too")
        ann.say("hermes", "\x01PING 42\x01")
        ann.say("hermes", "\x01VERSION\x01")
        assert "\x01PING 42\x01" in await ann.hear("NOTICE ann")
        assert "\x01VERSION hermes-agent\x01" in await ann.hear("NOTICE ann")
        assert inbox.is_empty

    at(server, make, steps)


async def test_a_server_that_goes_away_is_told_to_the_runner_and_connecting_again_works(
    make: Make, tmp_path: Path
) -> None:
    lost = asyncio.Event()
    with ngircd(tmp_path / "irc") as server:
        adapter = make("irc", **PLAIN, server=server.host, port=server.port, channel="#room")
        adapter.set_fatal_error_handler(lambda adapter: lost.set())
        assert await adapter.connect()
    await asyncio.wait_for(lost.wait(), WAIT_S)
    assert (adapter.is_connected, adapter.fatal_error_code) == (False, "connection_lost")
    assert adapter.fatal_error_retryable
    await adapter.disconnect()
    assert not await adapter.connect(is_reconnect=True)
    assert (adapter.fatal_error_code, adapter.fatal_error_retryable) == ("not_connected", True)
    result = await call_send(adapter, "#room", "hello")
    assert (result.success, result.retryable) == (False, True)
    with ngircd(tmp_path / "irc", port=server.port) as server:
        ann = await Person("ann").come(server, "#room")
        assert await adapter.connect(is_reconnect=True)
        await ann.hear("JOIN :#room")
        assert (await adapter.send("#room", "again")).success
        await ann.hear("PRIVMSG #room :again")
        await adapter.disconnect()
        await ann.leave()


async def test_tls_is_checked(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def connects(server: IrcServer) -> Any:
        adapter = make("irc", server=server.host, port=server.port, channel="#room", server_password="se:cret")
        connected = await adapter.connect()
        await adapter.disconnect()
        return connected, adapter.fatal_error_message

    with ngircd(tmp_path / "irc", tls=True, password="se:cret") as server:
        no, why = await connects(server)
        monkeypatch.setenv("SSL_CERT_FILE", server.certificate)
        yes, _ = await connects(server)

    assert (no, yes) == (False, True)
    assert "CERTIFICATE_VERIFY_FAILED" in why


async def test_tls_at_a_port_without_it_is_told_as_that_with_the_setting_which_turns_it_off(make: Make) -> None:
    async def speak_first(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b":irc.test NOTICE * :*** Looking up your hostname\r\n")
        await writer.drain()

    async def connects() -> tuple[int, Any]:
        async with await asyncio.start_server(speak_first, "127.0.0.1", 0) as plain:
            port = plain.sockets[0].getsockname()[1]
            adapter = make("irc", server="127.0.0.1", port=port)
            assert not await adapter.connect()
            return port, adapter

    port, adapter = await connects()

    assert f"no TLS at port {port}" in adapter.fatal_error_message
    assert "platforms.irc.use_tls: false" in adapter.fatal_error_message


async def test_a_wrong_password_ends_it_for_good(make: Make, tmp_path: Path) -> None:
    async def run(server: IrcServer) -> Any:
        adapter = make("irc", **PLAIN, server=server.host, port=server.port, server_password="wrong")
        assert not await adapter.connect()
        return adapter

    with ngircd(tmp_path / "irc", password="right") as server:
        adapter = await run(server)

    assert adapter.has_fatal_error
    assert "wrong" not in adapter.fatal_error_message.replace("wrong password", "")


def test_one_process_has_a_nick(make: Make, server: IrcServer, tmp_path: Path) -> None:
    async def steps(adapter: Any, ann: Person) -> str:
        (lock,) = (tmp_path / "locks").iterdir()
        text = lock.read_text()
        assert "hermes" not in text.replace("hermes_", "")
        return text

    assert '"scope": "irc"' in at(server, make, steps)


def test_a_message_that_could_not_be_taken_in_is_told_to_the_runner(make: Make, server: IrcServer) -> None:
    async def steps(adapter: Any, ann: Person) -> None:
        lost = asyncio.Event()

        async def fails(event: Any) -> None:
            raise RuntimeError("the disk is full")

        adapter.handle_message = fails
        adapter.set_fatal_error_handler(lambda adapter: lost.set())
        ann.say("hermes", "hello")
        await asyncio.wait_for(lost.wait(), WAIT_S)
        assert (adapter.is_connected, adapter.fatal_error_retryable) == (False, True)
        assert "the disk is full" in adapter.fatal_error_message

    at(server, make, steps)


async def shortened(make: Make, server: IrcServer, *squatters: str) -> tuple[str, list[str]]:
    """Connect with a nick that is too long; return the nick that it has, and what it heard."""
    there = [await Person(nick).come(server) for nick in squatters]
    ann = await Person("ann").come(server, "#room")
    settings = {**PLAIN, "nickname": "assistant-of-the-house", "ping_interval": 0.05}
    adapter = make("irc", **settings, server=server.host, port=server.port, channel="#room")
    try:
        assert await adapter.connect(), adapter.fatal_error_message
        nick = (await ann.hear(":assistan")).split("!")[0].removeprefix(":")
        inbox = Inbox(adapter)
        ann.say("#room", f"{nick}: by its nick")
        ann.say("#room", "assistant-of-the-house: by its name")
        heard = [(await inbox.next()).text for _ in range(2)]
        await asyncio.sleep(0.15)  # some ticks: it must not ask for the long nick again and again
        assert not [line for line in await ann.all_heard() if " NICK " in line]
        return nick, heard
    finally:
        await adapter.disconnect()
        for person in (ann, *there):
            await person.leave()


async def test_a_nick_longer_than_the_server_takes_is_shortened_and_answered_to(make: Make, tmp_path: Path) -> None:
    with ngircd(tmp_path / "irc", nick_length=9) as small:
        assert await shortened(make, small) == ("assistant", ["by its nick", "by its name"])
        assert (await shortened(make, small, "assistant"))[0] == "assistan_"


async def test_a_nick_that_was_shortened_too_much_is_lengthened_to_what_the_server_says(
    make: Make, tmp_path: Path
) -> None:
    async def run(server: IrcServer) -> None:
        ann = await Person("ann").come(server, "#room")
        settings = {**PLAIN, "nickname": "assistant-of-the-house", "port": server.port, "channel": "#room"}
        adapter = make("irc", **settings, server=server.host)
        try:
            assert await adapter.connect()
            await ann.hear("NICK :assistant-of-the-h")
        finally:
            await adapter.disconnect()
            await ann.leave()

    with ngircd(tmp_path / "irc", nick_length=18) as middle:
        await run(middle)


async def test_who_sets_it_up_is_told_which_nick_it_has_where_the_configured_one_is_too_long(
    make: Make, tmp_path: Path
) -> None:
    async def told(server: IrcServer, nickname: str) -> Any:
        adapter = make("irc", **{**PLAIN, "nickname": nickname}, server=server.host, port=server.port)
        return await make.host.platforms.get("irc").attempt_fn(adapter.config)  # type: ignore[attr-defined]

    with ngircd(tmp_path / "irc", nick_length=9) as short:
        assert await told(short, "hermes-bot") == "The nick is hermes-bo: the server allows 9 characters."
        assert await told(short, "hermes") == ""


def test_setup_tries_the_answers_offers_to_correct_them_and_makes_no_secret_of_a_server(
    server: IrcServer, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".env").write_text("IRC_SERVER=irc.of-an-earlier.setup\n")
    (home / ".env").chmod(0o600)
    environ = {"PATH": os.environ["PATH"], "HERMES_HOME": str(home), "HOME": str(tmp_path), "NO_COLOR": "1"}
    hermes = str(Path(sys.executable).with_name("hermes"))
    child = pexpect.spawn(hermes, ["gateway", "setup", "irc"], env=environ, timeout=WAIT_S, encoding="utf-8")

    def answer(question: str, said: str) -> None:
        child.expect_exact(question)
        child.sendline(said)

    def answers(port: int, tls: str) -> None:
        answer("Host name of the server", server.host)
        answer("Channels to join", "#room")
        answer("Nick of the agent", "alexanders-agent")
        answer("Port", str(port))
        answer("TLS", tls)
        answer("Password of the nick at NickServ", "words-for-nickserv")

    answers(free_port(), "no")
    child.expect_exact("It cannot connect: ")
    child.expect("refused|111|Connect")
    answer("Correct the answers?", "y")
    answers(server.port, "no")
    child.expect_exact("Connected.")
    answer("allow_from", "katharina, benjamin")
    child.expect_exact("Enabled")
    child.expect(pexpect.EOF)

    assert (home / ".env").read_text() == "IRC_NICKSERV_PASSWORD=words-for-nickserv\n"
    config = load(home).values["platforms"]["irc"]
    assert (config["server"], config["port"], config["use_tls"]) == (server.host, server.port, False)
    assert config["allow_from"] == ["katharina", "benjamin"]
    told = {"HERMES_HOME": str(home), "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    code = (
        "from hermes_agent.host import Host; from pathlib import Path;"
        "from hermes_agent.core.redaction import redactor;"
        f"h = Host.build(Path({str(home)!r})); h.load_plugins();"
        "print(redactor('127.0.0.1 localhost katharina alexanders-agent words-for-nickserv')); h.bridge.close()"
    )
    shown = subprocess.run([sys.executable, "-c", code], env=told, capture_output=True, text=True, check=True).stdout
    assert shown == "127.0.0.1 localhost katharina alexanders-agent [redacted]\n"


# -- what newer servers have ----------------------------------------------------------------------------------------


def test_messages_have_ids_both_ways_and_times_where_the_server_gives_them(make: Make, modern: IrcServer) -> None:
    async def steps(adapter: Any, ann: Person) -> None:
        inbox = Inbox(adapter)
        ann.write("CAP REQ :message-tags echo-message")
        await ann.hear("CAP")
        ann.say("hermes", "hello")
        event = await inbox.next()
        assert f"msgid={event.message_id}" in await ann.hear(":hello")
        assert event.timestamp.tzinfo is not None

        result = await adapter.send("ann", "one\ntwo", reply_to=event.message_id)

        first, second = await ann.hear(":one"), await ann.hear(":two")
        assert f"msgid={result.message_id}" in first
        assert (f"msgid={result.continuation_message_ids[0]}" in second, len(result.continuation_message_ids)) == (
            True,
            1,
        )
        assert f"+draft/reply={event.message_id}" in first

    at(modern, make, steps)


def test_what_was_given_up_half_way_takes_no_ids_of_what_comes_after_it(make: Make, modern: IrcServer) -> None:
    async def steps(adapter: Any, ann: Person) -> None:
        sending = asyncio.create_task(adapter.send("ann", "one\ntwo"))
        await ann.hear(":one")
        sending.cancel()
        await asyncio.wait((sending,))
        result = await adapter.send("ann", "three")
        assert result.success and result.message_id

    at(modern, make, steps, flood_burst=1, flood_interval=3)


def test_typing_is_shown_where_the_server_passes_it_on(make: Make, modern: IrcServer) -> None:
    async def steps(adapter: Any, ann: Person) -> None:
        ann.write("CAP REQ :message-tags")
        await ann.hear("CAP")
        await adapter.send_typing("ann")
        assert "TAGMSG :ann" in await ann.hear("+typing=active")
        await adapter.stop_typing("ann")
        assert "TAGMSG :ann" in await ann.hear("+typing=done")

    at(modern, make, steps)


def test_by_account_a_nick_alone_is_nobody(make: Make, modern: IrcServer, server: IrcServer) -> None:
    async def steps(adapter: Any, ann: Person) -> str:
        inbox = Inbox(adapter)
        ann.say("hermes", "hello")
        return str((await inbox.next()).source.user_id)

    async def refused() -> Any:
        adapter = make("irc", **PLAIN, server=server.host, port=server.port, identify_by="account")
        assert not await adapter.connect()
        return adapter.fatal_error_code, adapter.fatal_error_retryable

    assert at(modern, make, steps, identify_by="account") == "~ann"
    assert asyncio.run(refused()) == ("no_accounts", False)


# -- accounts: no server here has them without services, so a small one speaks SASL -----------------------------------


class Scripted:
    """Registers one client, with SASL; `answer` is what it says to its credentials."""

    def __init__(self, answer: str = "903 * :ok") -> None:
        self.answer, self.lines = answer, list[str]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def say(line: str) -> None:
            writer.write(f":irc.test {line}\r\n".encode())

        while raw := await reader.readline():
            line = raw.decode().strip()
            self.lines.append(line)
            if line.startswith("CAP LS"):
                say("CAP * LS * :multi-prefix")
                say("CAP * LS :sasl=PLAIN,EXTERNAL account-tag")
            elif line.startswith("CAP REQ"):
                say(f"CAP * ACK {line.removeprefix('CAP REQ ')}")
            elif line in ("AUTHENTICATE PLAIN", "AUTHENTICATE EXTERNAL"):
                writer.write(b"AUTHENTICATE +\r\n")
            elif line.startswith("AUTHENTICATE "):
                say(self.answer)
            elif line == "CAP END":
                say("001 hermes :welcome")
            elif line.startswith("PING"):
                writer.write(f":irc.test PONG irc.test {line[5:]}\r\n".encode())
                if "drop" in self.answer:
                    writer.close()
            elif line.startswith("QUIT"):
                writer.close()

    async def connect(self, make: Make, **settings: Any) -> Any:
        async with await asyncio.start_server(self.serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            adapter = make("irc", **PLAIN, server="127.0.0.1", port=port, **settings)
            connected = await adapter.connect()
            await adapter.disconnect()
        return connected, adapter.fatal_error_code, adapter.fatal_error_retryable


async def test_an_account_is_shown_with_sasl(make: Make) -> None:
    server = Scripted()

    assert (await server.connect(make, sasl_account="acc", sasl_password="pass w"))[0] is True

    said = next(line for line in server.lines if line.startswith("AUTHENTICATE ") and "PLAIN" not in line)
    assert base64.b64decode(said.split()[1]) == b"acc\0acc\0pass w"
    assert "CAP REQ :account-tag sasl" in server.lines


async def test_a_certificate_is_enough_for_sasl_external(make: Make) -> None:
    server = Scripted()

    assert (await server.connect(make, sasl_mechanism="external"))[0] is True

    assert server.lines[server.lines.index("AUTHENTICATE EXTERNAL") + 1] == "AUTHENTICATE +"


async def test_a_refused_account_ends_it_for_good(make: Make) -> None:
    server = Scripted("904 * :SASL authentication failed")

    assert await server.connect(make, sasl_password="x") == (False, "sasl_failed", False)


async def test_nickserv_is_told_the_password_and_asked_for_the_nick(make: Make, server: IrcServer) -> None:
    nickserv = await Person("NickServ").come(server)
    squatter = await Person("hermes").come(server)
    adapter = make("irc", **PLAIN, server=server.host, port=server.port, nickserv_password="pw", ping_interval=60)
    try:
        assert await adapter.connect()
        assert "IDENTIFY hermes pw" in await nickserv.hear("PRIVMSG NickServ")
        assert "GHOST hermes pw" in await nickserv.hear("PRIVMSG NickServ")
        await squatter.leave()
        while "hermes!" not in (who := " ".join(await nickserv.all_heard())):
            nickserv.write("NOTICE hermes_ :Ghost is gone", "NOTICE hermes :Ghost is gone", "WHOIS hermes")
            if " 311 NickServ hermes " in who:
                break
    finally:
        await adapter.disconnect()
        await nickserv.leave()


@pytest.mark.parametrize(
    ("answers", "kind", "retryable", "unknown"),
    [
        (["404 hermes ann :Cannot send"], "forbidden", False, False),
        (["477 hermes ann :You need to be identified"], "forbidden", False, False),
        (["716 hermes ann :is in +g mode"], "forbidden", False, False),
        (["437 hermes ann :Nick/channel is temporarily unavailable"], "transient", True, False),
        (["404 hermes ann :Message throttled due to flooding"], "rate_limited", True, False),
        (["439 hermes ann :Target change too fast"], "rate_limited", True, False),
        (["263 hermes PRIVMSG :Please wait a while and try again"], "rate_limited", True, False),
        (["FAIL PRIVMSG SOMETHING ann :not now"], "forbidden", False, False),
        (["NOTICE hermes :*** Message to ann throttled due to flooding"], "rate_limited", True, False),
        ([None, "404 hermes ann :Cannot send"], "unknown", False, True),
    ],
)
async def test_what_the_server_refused_certainly_did_not_arrive_and_what_it_took_in_part_may_have(
    make: Make, answers: list[str | None], kind: str, retryable: bool, unknown: bool
) -> None:
    class Refuses(Scripted):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            left = list(answers)
            while raw := await reader.readline():
                if raw.startswith(b"USER"):
                    writer.write(b":irc.test 001 hermes :welcome\r\n")
                elif raw.startswith(b"PING"):
                    writer.write(b":irc.test PONG irc.test " + raw[5:])
                elif raw.startswith(b"PRIVMSG") and (answer := left.pop(0)):
                    writer.write(f":irc.test {answer}\r\n".encode())

    async def run() -> Any:
        async with await asyncio.start_server(Refuses().serve, "127.0.0.1", 0) as server:
            adapter = make("irc", **PLAIN, server="127.0.0.1", port=server.sockets[0].getsockname()[1])
            assert await adapter.connect()
            result = await adapter.send("ann", "\n".join("line" for _ in answers))
            await adapter.disconnect()
            return result

    result = await run()

    assert (result.success, result.error_kind, result.retryable) == (False, kind, retryable)
    assert is_timeout_error(result.error) is unknown


async def test_a_line_that_is_cut_before_the_server_has_confirmed_it_may_have_arrived(make: Make) -> None:
    class Cuts(Scripted):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while raw := await reader.readline():
                if raw.startswith(b"USER"):
                    writer.write(b":irc.test 001 hermes :welcome\r\n")
                elif raw.startswith(b"PRIVMSG"):
                    writer.close()

    async def run() -> Any:
        async with await asyncio.start_server(Cuts().serve, "127.0.0.1", 0) as server:
            adapter = make("irc", **PLAIN, server="127.0.0.1", port=server.sockets[0].getsockname()[1])
            assert await adapter.connect()
            result = await adapter.send("ann", "hello")
            assert adapter._is_timeout_error(result.error)  # so that nobody sends it again unasked
            await adapter.disconnect()
            return result

    result = await run()

    assert (result.success, result.retryable) == (False, False)
