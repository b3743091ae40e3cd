"""Users of chats: files that they send, and users who are not let in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from attack.home_rows import ROWS, SHARED_CACHES, batches, furnish, mark, readable
from hermes_agent.adapters.media import cache_document_from_bytes
from hermes_agent.testing import call
from hermes_agent.testing.chat import chat_host


@pytest.mark.attack("users")
def test_a_file_that_is_sent_into_a_chat_is_its_senders(attempt: Callable[[bool, str], None]) -> None:
    with chat_host() as chat:
        path = cache_document_from_bytes(b"MARKupload", "plan.txt")
        chat.host.model.say("Thanks.")
        chat.ask("Look", user="ann", chat="a", media_urls=[path], media_types=["text/plain"])
        asked = json.dumps(chat.host.model.requests[-1]["messages"][-1])
        found = re.search(r"came with it: (\S+) ", asked)
        assert found is not None
        kept = Path(found[1])
        assert kept.read_bytes() == b"MARKupload" and not Path(path).exists()

        for user, is_theirs in (("ann", True), ("bob", False)):
            chat.host.model.say(call("read_file", path=str(kept)), "Read.")
            chat.ask("Read it", user=user, chat=user[0])
            result = json.dumps(chat.host.model.requests[-1]["messages"][-1])
            assert is_theirs == ("MARKupload" in result)
            session = chat.ask("/status", user=user, chat=user[0]).split()[1]
            assert not is_theirs or chat.host.host.provenance.count_untrusted(session)  # what is sent is untrusted text
            chat.host.model.say(f"Here it is.\nMEDIA:{kept}")
            chat.ask("Send it", user=user, chat=user[0])
            if is_theirs:
                chat.wait(lambda: chat.adapter.files, "a file")
                assert chat.adapter.files.pop()[0] == "a"
        chat.ask("/status", user="bob", chat="b")
        attempt(not chat.adapter.files, "bob is sent ann's upload")
        attempt("MARKupload" not in result, "bob reads ann's upload")


@pytest.mark.attack("users")
def test_no_entry_of_the_home_is_told_in_a_chat(attempt: Callable[[bool, str], None]) -> None:
    with chat_host() as chat:
        files = furnish(chat.host.home)
        for some in batches(12):
            chat.host.model.say(*[call("read_file", path=str(files[entry])) for entry in some], "Read.")
            chat.ask("Read them", user="bob", chat="b")
            told = json.dumps(chat.host.model.requests[-1]["messages"])
            for entry in some:
                if readable(ROWS[entry][1]):
                    assert mark(entry) in told, entry
                else:
                    attempt(mark(entry) not in told, f"bob reads {entry} in a chat")
            lines = "".join(f"MEDIA:{files[entry]}\n" for entry in some if entry not in SHARED_CACHES)
            chat.host.model.say(f"Here they are.\n{lines}")
            chat.ask("Send them", user="bob", chat="b")
        chat.ask("/status", user="bob", chat="b")
        assert not set(chat.host.home.iterdir()) - {chat.host.home / name for name in ROWS}
        for _, sent, *_ in chat.adapter.files:
            text = Path(sent).read_text()
            shown = [entry for entry, (_, whose) in ROWS.items() if mark(entry) in text and not readable(whose)]
            attempt(not shown, f"bob is sent {shown}")


@pytest.mark.attack("users")
def test_who_is_not_paired_gets_nothing(attempt: Callable[[bool, str], None]) -> None:
    with chat_host(allow="ann", model=["Noted."]) as chat:
        chat.ask("My otter is called MARKotter", user="ann", chat="a")
        for line in ("/resume", "/status", "/rollback", "read the notes", "/approve", "/whoami", "/help all"):
            before = len(chat.texts)
            chat.write(line, user="eve", chat="e")
            chat.ask("/whoami", user="ann", chat="a")
            said = [one.text for one in chat.adapter.sent[before:] if one.chat == "e"]
            attempt(not any("otter" in text or "memorychat:" in text for text in said), f"eve is answered to {line}")
        attempt(len(chat.host.model.requests) == 1, "eve's words reach the model")
