"""Email: the bundled platform at a real dovecot and an SMTP server (docs/operator/platforms/email.md)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from email.utils import make_msgid
from pathlib import Path
from typing import Any

import pytest

from contracts.platform_suite import Bench, PlatformSuite
from hermes_agent.adapters.events import MessageType
from peers.install import NotInstalled
from peers.mail import PASSWORD, Mailbox, Post, dovecot
from peers.running import free_port
from platforms.conftest import PNG, WAIT_S, Inbox, Make, attempted

numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[Mailbox]:
    try:
        with dovecot() as running:
            yield running
    except NotInstalled as exc:
        pytest.skip(str(exc))


@pytest.fixture
def mailbox(server: Mailbox) -> Mailbox:
    """An empty one."""
    return server._replace(user=f"agent{next(numbers)}@example.org")


@pytest.fixture(scope="module")
def smtp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Post]:
    with Post(tmp_path_factory.mktemp("post")) as running:
        yield running


@pytest.fixture
def post(smtp: Post) -> Post:
    """With nothing received yet."""
    smtp.received.clear()
    return smtp


@pytest.fixture
def settings(mailbox: Mailbox, post: Post, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Both servers with TLS, both certificates trusted."""
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(Path(mailbox.certificate).read_text() + Path(post.certificate).read_text())
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    return {
        "address": mailbox.user,
        "password": PASSWORD,
        "imap_host": "127.0.0.1",
        "imap_port": mailbox.tls_port,
        "smtp_host": "127.0.0.1",
        "smtp_port": post.port,
    }


def mail(text: str = "hello", subject: str = "", sender: str = "Ann <Ann@example.org>", **headers: str) -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"] = sender, "agent@example.org"
    message["Message-ID"] = make_msgid(domain="example.org")
    if subject:
        message["Subject"] = subject
    for name, value in headers.items():
        message[name.replace("_", "-")] = value
    message.set_content(text)
    return message


class EmailBench:
    """Ann writes into one thread."""

    def __init__(self, adapter: Any, mailbox: Mailbox, post: Post) -> None:
        self.adapter, self.mailbox, self.post = adapter, mailbox, post

    async def arrive(self) -> None:
        self.taken = Inbox(self.adapter, through=True)

    async def write(self, chat_id: str, user_id: str, text: str) -> None:
        written = mail(text, sender=user_id, References="<root@example.org>")
        await asyncio.to_thread(self.mailbox.put, written)
        await self.taken.next()

    async def leave(self) -> None: ...

    def sent(self) -> list[tuple[str, str]]:
        return [(str(m["To"]), m.get_content().strip()) for m in self.post.received]


class TestAtDovecot(PlatformSuite):
    ROOM, OTHER_ROOM, PERSON = "ann@example.org", "bob@example.org", "ann@example.org"

    @pytest.fixture
    def bench(self, make: Make, settings: dict[str, Any], mailbox: Mailbox, post: Post) -> Bench:
        return EmailBench(make("email", **settings), mailbox, post)


async def watching(adapter: Any, steps: Callable[[Any, Inbox], Any]) -> Any:
    """Take steps while an adapter watches its mailbox."""

    async def run() -> Any:
        inbox = Inbox(adapter)
        assert await adapter.connect(is_reconnect=False), adapter.fatal_error_message
        try:
            return await asyncio.wait_for(steps(adapter, inbox), WAIT_S)
        finally:
            await adapter.disconnect()

    return await run()


async def put(mailbox: Mailbox, *mails: EmailMessage | bytes) -> None:
    await asyncio.to_thread(mailbox.put, *mails)


async def test_a_mail_is_a_message_of_its_thread_and_the_answer_stays_in_it(
    make: Make, settings: dict[str, Any], mailbox: Mailbox, post: Post
) -> None:
    first = mail("What is new?\n\nRegards\n-- \nAnn\nTel. 1", "The plan")

    async def steps(adapter: Any, inbox: Inbox) -> None:
        await put(mailbox, first)
        event = await inbox.next()
        source = event.source
        assert event.text == "[Subject: The plan]\n\nWhat is new?\n\nRegards"
        assert (source.chat_id, source.chat_type, source.user_id) == ("ann@example.org", "dm", "ann@example.org")
        assert (source.user_name, source.thread_id, event.message_id) == (
            "Ann",
            first["Message-ID"],
            first["Message-ID"],
        )

        result = await adapter.send(
            source.chat_id, "Nothing, ü.", event.message_id, {"thread_id": source.thread_id, "delivery_key": "k1"}
        )

        (answer,) = post.received
        assert (result.success, result.message_id) == (True, answer["Message-ID"])
        assert (answer["Subject"], answer.get_content().strip()) == ("Re: The plan", "Nothing, ü.")
        assert (answer["In-Reply-To"], answer["References"]) == (first["Message-ID"],) * 2
        assert (answer["From"], answer["Auto-Submitted"]) == (mailbox.user, "auto-replied")

        quoted = (
            "And now?\n\nOn Sun, 22 Nov 2026 at 10:00 the agent\n<agent@example.org> wrote:\n> Nothing, ü.\n> \n> yes\n"
        )
        references = f"{first['Message-ID']} {answer['Message-ID']}"
        await put(mailbox, mail(quoted, "Re: The plan", In_Reply_To=answer["Message-ID"], References=references))
        event = await inbox.next()
        assert (event.text, event.source.thread_id) == ("And now?", source.thread_id)
        assert event.reply_to_message_id == answer["Message-ID"]

    await watching(make("email", **settings), steps)


async def test_the_same_delivery_has_the_same_id_and_another_one_another(
    make: Make, settings: dict[str, Any], post: Post
) -> None:
    async def run(adapter: Any) -> list[str]:
        return [(await adapter.send("ann@example.org", "x", None, {"delivery_key": key})).message_id for key in "aab"]

    one, same, other = await run(make("email", **settings))

    assert one == same != other


async def test_what_was_there_before_is_left_alone_and_what_came_during_downtime_is_read_once(
    make: Make, settings: dict[str, Any], mailbox: Mailbox
) -> None:
    mailbox.put(mail("old"))

    async def first(adapter: Any, inbox: Inbox) -> None:
        await put(mailbox, mail("one"))
        assert (await inbox.next()).text == "one"
        await put(mailbox, mail("two"))
        assert (await inbox.next()).text == "two"

    async def second(adapter: Any, inbox: Inbox) -> None:
        assert [(await inbox.next()).text, (await inbox.next()).text] == ["three", "four"]
        await put(mailbox, mail("five"))
        assert (await inbox.next()).text == "five"

    await watching(make("email", **settings), first)
    mailbox.put(mail("three"), mail("four"))
    await watching(make("email", **settings), second)

    assert mailbox.seen() == [False, True, True, True, True, True]


async def test_a_mail_that_could_not_be_taken_in_comes_again(
    make: Make, settings: dict[str, Any], mailbox: Mailbox
) -> None:
    adapter = make("email", **settings)

    async def run() -> tuple[str, str]:
        lost = asyncio.Event()
        adapter.set_fatal_error_handler(lambda adapter: lost.set())

        async def fails(event: Any) -> None:
            raise OSError("disk full")

        adapter.handle_message = fails
        await adapter.connect()
        await put(mailbox, mail("important"))
        await asyncio.wait_for(lost.wait(), WAIT_S)
        assert adapter.fatal_error_retryable
        await adapter.disconnect()
        return adapter.fatal_error_code, adapter.fatal_error_message

    async def again(adapter: Any, inbox: Inbox) -> str:
        return str((await inbox.next()).text)

    code, message = await run()

    assert (code, "disk full" in message) == ("connection_lost", True)
    assert await watching(make("email", **settings), again) == "important"


async def test_a_folder_that_was_numbered_anew_is_begun_anew(
    make: Make, settings: dict[str, Any], mailbox: Mailbox
) -> None:
    def fresh() -> None:
        with mailbox.opened() as client:
            client.delete("Agent")
            client.create("Agent")
        mailbox.put(mail("there already"), folder="Agent")

    async def steps(adapter: Any, inbox: Inbox) -> None:
        await asyncio.to_thread(mailbox.put, mail("new"), folder="Agent")
        assert (await inbox.next()).text == "new"

    fresh()
    await watching(make("email", **settings, folder="Agent"), steps)
    fresh()
    await watching(make("email", **settings, folder="Agent"), steps)


@pytest.mark.parametrize(
    "bad",
    [
        mail(sender="OWN"),
        mail(Auto_Submitted="auto-replied (vacation)"),
        mail(Precedence="bulk"),
        mail(List_Id="<list.example.org>"),
        mail(Return_Path="<>"),
        mail(X_Loop="OWN"),
        mail(sender="MAILER-DAEMON@example.org"),
        mail(sender="no-reply+1@example.org"),
        b"Subject: nobody wrote this\r\n\r\nx\r\n",
        b"From: x@example.org\r\nContent-Type: text/plain; charset=\xff\xfe\r\nMessage-ID: broken\r\n\r\n",
    ],
    ids=["own", "automatic", "bulk", "list", "bounce", "loop", "daemon", "no-reply", "no-sender", "empty"],
)
async def test_what_could_begin_a_loop_is_not_answered_and_stops_nothing(
    make: Make, settings: dict[str, Any], mailbox: Mailbox, bad: EmailMessage | bytes
) -> None:
    async def steps(adapter: Any, inbox: Inbox) -> None:
        await put(mailbox, bytes(bad).replace(b"OWN", mailbox.user.encode()), mail("good"))
        event = await inbox.next()
        if event.source.chat_id == "x@example.org":  # odd, but somebody's
            event = await inbox.next()
        assert event.text == "good"

    await watching(make("email", **settings), steps)


async def test_a_bounce_says_in_the_log_who_did_not_get_the_mail(
    make: Make, settings: dict[str, Any], mailbox: Mailbox, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [
        "From: Mail Delivery <mailer-daemon@example.org>",
        "Content-Type: multipart/report; report-type=delivery-status; boundary=b",
        *("", "--b", "Content-Type: text/plain", "", "sorry"),
        *("--b", "Content-Type: message/delivery-status", "", "Reporting-MTA: dns; mx", ""),
        *("Final-Recipient: rfc822; gone@example.org", "Action: failed", "", "--b--", ""),
    ]
    bounce = "\r\n".join(lines).encode()

    async def steps(adapter: Any, inbox: Inbox) -> None:
        await put(mailbox, bounce, mail("good"))
        assert (await inbox.next()).text == "good"

    await watching(make("email", **settings), steps)

    assert any("not delivered to gone@example.org" in text for text in caplog.messages)


async def test_html_is_read_as_text(make: Make, settings: dict[str, Any], mailbox: Mailbox) -> None:
    page = """<html><head><title>no</title><style>p {}</style></head><body><p>Dear&nbsp;agent,<br>see
      <a href="https://example.org/x">this page</a>:</p><ul><li>one</li><li>two &amp; three</li></ul>
      <script>alert(1)</script>
      <div class="gmail_quote">On Sunday you wrote:<blockquote>old text</blockquote></div></body>"""
    written = mail()
    written.set_content(page, subtype="html")

    async def steps(adapter: Any, inbox: Inbox) -> str:
        await put(mailbox, written)
        return str((await inbox.next()).text)

    text = await watching(make("email", **settings), steps)

    assert text == "Dear agent,\nsee this page (https://example.org/x):\n\n- one\n\n- two & three"


async def test_a_page_that_is_made_to_take_long_holds_nobody_up(
    make: Make, settings: dict[str, Any], mailbox: Mailbox
) -> None:
    links = 150_000
    page = "<a href='http://example.org/'>x\r\n" * links + "</a>\r\n" * links
    head = (
        "From: ann@example.org\r\nSubject: links\r\nMessage-ID: <links@example.org>\r\nContent-Type: text/html\r\n\r\n"
    )

    async def steps(adapter: Any, inbox: Inbox) -> str:
        await put(mailbox, (head + page).encode())
        return str((await inbox.next()).text)

    assert "x (http://example.org/)" in await watching(make("email", **settings), steps)


async def test_attachments_are_kept_in_both_directions(
    make: Make, settings: dict[str, Any], mailbox: Mailbox, post: Post, tmp_path: Path
) -> None:
    written = mail("see below")
    written.add_attachment(PNG, maintype="image", subtype="png", filename="../../pic.png")
    written.add_attachment(b"%PDF-1.4", maintype="application", subtype="pdf", filename="größe.pdf")
    report = tmp_path / "Bericht ü.csv"
    report.write_text("a,b\n")

    async def steps(adapter: Any, inbox: Inbox) -> None:
        await put(mailbox, written)
        event = await inbox.next()
        assert (event.message_type, event.media_types) == (MessageType.PHOTO, ["image/png", "application/pdf"])
        assert list(map(Path.read_bytes, map(Path, event.media_urls))) == [PNG, b"%PDF-1.4"]
        assert all(str(tmp_path) in path for path in event.media_urls)
        thread = {"thread_id": event.source.thread_id}
        assert (await adapter.send_document("ann@example.org", str(report), "the report", metadata=thread)).success
        await adapter.send_multiple_images(
            "ann@example.org", [(f"file://{event.media_urls[0]}", "pic"), ("https://x/y", "")]
        )

    await watching(make("email", **settings), steps)

    first, second = post.received
    (attached,) = first.iter_attachments()
    assert (attached.get_filename(), attached.get_content()) == ("Bericht ü.csv", "a,b\n")
    assert (first.get_body().get_content().strip(), first["Subject"]) == ("the report", "Re: the report")
    assert [part.get_content_type() for part in second.iter_attachments()] == ["image/png"]
    assert "https://x/y" in second.get_body().get_content()


async def test_attachments_are_not_read_where_the_config_says_so(
    make: Make, settings: dict[str, Any], mailbox: Mailbox
) -> None:
    written = mail("see below")
    written.add_attachment(PNG, maintype="image", subtype="png", filename="pic.png")

    async def steps(adapter: Any, inbox: Inbox) -> Any:
        await put(mailbox, written)
        return await inbox.next()

    assert (await watching(make("email", **settings, skip_attachments=True), steps)).media_urls == []


async def test_only_who_the_own_mail_server_vouches_for_is_heard_where_the_config_says_so(
    make: Make, settings: dict[str, Any], mailbox: Mailbox
) -> None:
    forged = mail("forged", Authentication_Results="evil.example; dmarc=pass")
    failed = mail(
        "failed", Authentication_Results="mx.example.org; spf=pass; dmarc=fail (p=none) header.from=example.org"
    )
    failed["Authentication-Results"] = "mx.example.org; dmarc=pass"  # below the server's own: the sender's
    proven = mail("proven", Authentication_Results="mx.example.org 1; spf=pass; dmarc=pass header.from=example.org")

    async def steps(adapter: Any, inbox: Inbox) -> str:
        await put(mailbox, mail("bare"), forged, failed, proven)
        return str((await inbox.next()).text)

    assert await watching(make("email", **settings, require_authentication="mx.example.org"), steps) == "proven"


async def test_failures_of_sending_say_whether_trying_again_helps(
    make: Make, settings: dict[str, Any], post: Post
) -> None:
    async def run(adapter: Any) -> dict[str, Any]:
        targets = ("nobody@example.org", "later@example.org", "no address", "a@b, c@d", "a@b\nBcc: c@d")
        return {to: await adapter.send(to, "x") for to in targets}

    async def wrong_password() -> Any:
        return await make("email", **{**settings, "password": "wrong"}).send("ann@example.org", "x")

    async def nobody_there() -> Any:
        return await make("email", **{**settings, "smtp_port": 1}).send("ann@example.org", "x")

    async def hung_up(adapter: Any) -> Any:
        return await adapter.send("ann@example.org", "hang up"), adapter

    gone, later, *bad = (await run(make("email", **settings))).values()
    refused, unreachable = await wrong_password(), await nobody_there()
    unknown, adapter = await hung_up(make("email", **settings))

    assert (gone.success, gone.error_kind, gone.retryable) == (False, "not_found", False)
    assert (later.success, later.retryable) == (False, True)
    assert {result.error_kind for result in bad} == {"not_found"}
    assert (refused.retryable, PASSWORD in refused.error, unreachable.retryable) == (True, False, True)
    assert (unknown.success, unknown.retryable) == (False, False)
    assert adapter._is_timeout_error(unknown.error)


async def test_a_wrong_password_ends_it_for_good_and_is_not_shown(make: Make, settings: dict[str, Any]) -> None:
    async def run(**more: Any) -> Any:
        adapter = make("email", **{**settings, **more})
        assert not await adapter.connect()
        return adapter

    adapter = await run(password="a wrong one")

    assert (adapter.fatal_error_code, adapter.fatal_error_retryable) == ("imap_refused", False)
    assert "a wrong one" not in adapter.fatal_error_message
    assert (await run(imap_port=1)).fatal_error_retryable


async def test_certificates_are_checked(make: Make, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")

    async def run() -> Any:
        adapter = make("email", **settings)
        assert not await adapter.connect()
        return adapter.fatal_error_message, await adapter.send("ann@example.org", "x")

    why, result = await run()

    assert "CERTIFICATE_VERIFY_FAILED" in why
    assert "CERTIFICATE_VERIFY_FAILED" in result.error


async def test_starttls_works(make: Make, settings: dict[str, Any], mailbox: Mailbox) -> None:
    async def steps(adapter: Any, inbox: Inbox) -> None:
        await put(mailbox, mail("hello"))
        assert (await inbox.next()).text == "hello"

    await watching(make("email", **{**settings, "imap_port": mailbox.port, "imap_security": "starttls"}), steps)


async def test_a_server_that_goes_away_is_told_to_the_runner(
    make: Make, settings: dict[str, Any], mailbox: Mailbox
) -> None:
    async def run() -> Any:
        lost = asyncio.Event()
        writers: list[asyncio.StreamWriter] = []

        async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            inner, outer = await asyncio.open_connection("127.0.0.1", mailbox.port)
            writers.append(writer)

            async def copy(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
                while data := await source.read(4096):
                    to.write(data)

            await asyncio.gather(copy(reader, outer), copy(inner, writer), return_exceptions=True)

        async with await asyncio.start_server(passed_on, "127.0.0.1", 0) as relay:
            port = relay.sockets[0].getsockname()[1]
            adapter = make("email", **{**settings, "imap_port": port, "imap_security": "none"})
            adapter.set_fatal_error_handler(lambda adapter: lost.set())
            assert await adapter.connect()
            writers[0].close()
            await asyncio.wait_for(lost.wait(), WAIT_S)
            await adapter.disconnect()
        return adapter.fatal_error_code, adapter.fatal_error_retryable

    assert await run() == ("connection_lost", True)


def test_setup_tries_both_servers(make: Make, settings: dict[str, Any]) -> None:
    assert attempted(make, make("email", **settings)) == ""
    assert "refused" in attempted(make, make("email", **{**settings, "smtp_port": free_port()}))
    assert attempted(make, make("email", **{**settings, "password": "wrong"})) != ""
