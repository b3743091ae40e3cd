"""What is typed, completed, pasted and queued in the console."""

from __future__ import annotations

from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from hermes_agent.commands import HelpRow
from hermes_agent.console.clipboard import paste_from_clipboard
from hermes_agent.console.input import (
    MAX_QUEUED,
    InputQueue,
    PasteStore,
    QueuedInput,
    content_with_images,
    dropped_files,
    mentioned_images,
)
from hermes_agent.console.line_editor import ChatCompleter, CompletionSource, hint_for
from hermes_agent.core.errors import UserError

ENTRIES = [
    HelpRow("scan", "<pattern>", "Find files"),
    HelpRow("scandal", "", "Tell"),
    HelpRow("help", "", "Help"),
    HelpRow("tea", "", "Brew tea"),
]
PIXEL = bytes.fromhex("89504e470d0a1a0a")


def completions(text: str, directory: Path = Path("/nonexistent")) -> list[tuple[str, str]]:
    source = CompletionSource(
        commands=lambda: ENTRIES,
        arguments=lambda name: {
            "theme": [("dark", ""), ("light", "")],
            "tea": [("/toast", "Make toast"), ("/trifle", "")],
        }.get(name, []),
        sessions=lambda: [("20260102_1", "plans for the garden")],
        directory=lambda: directory,
    )
    found = ChatCompleter(source).get_completions(Document(text), CompleteEvent())
    return [(c.text, c.display_text) for c in found]


def test_names_are_completed_with_what_may_follow() -> None:
    assert completions("/sca") == [("/scan", "/scan <pattern>"), ("/scandal", "/scandal")]
    assert completions("/SCAN") == completions("/scan")
    assert completions("scan") == []


def test_arguments_are_completed_by_their_command() -> None:
    assert completions("/theme li") == [("light", "light")]
    assert [text for text, _ in completions("/theme ")] == ["dark", "light"]
    assert completions("/scan x") == []


def test_beside_a_whole_name_stands_what_may_follow() -> None:
    hints = [hint_for(text, lambda: ENTRIES) for text in ("/scan ", "/SCAN x", "/scandal ", "/scan", "/no ", "scan ")]
    assert hints == ["<pattern>  Find files", "<pattern>  Find files", "Tell", "", "", ""]


def test_files_and_sessions_are_found_by_parts_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    for name in ("src/main.py", "src/menu.py", "my notes.txt", ".hidden"):
        (tmp_path / name).write_text("")
    assert [text for text, _ in completions("look at @mai", tmp_path)] == ["@src/main.py"]
    assert [text for text, _ in completions("@notes", tmp_path)] == ['@"my notes.txt"']
    assert completions("@session:garden", tmp_path) == [("@session:20260102_1", "@session:20260102_1")]
    assert completions("mail@mai", tmp_path) == []


def test_plugins_come_before_what_was_typed_and_too_much_is_refused() -> None:
    called: list[int] = []
    waiting = InputQueue(lambda: called.append(1))
    assert waiting.add_typed("typed") and waiting.add_injected("first") and waiting.add_injected("second")
    assert waiting.texts() == ["first", "second", "typed"]
    assert [waiting.take() for _ in range(4)] == [
        QueuedInput("first", False),
        QueuedInput("second", False),
        QueuedInput("typed"),
        None,
    ]
    assert len(called) == 2

    assert all(waiting.add_typed("x") for _ in range(MAX_QUEUED))
    assert not waiting.add_typed("x")
    assert not waiting.add_injected("x")
    assert len(called) == 2


def test_the_last_typed_message_is_taken_back_and_no_text_of_a_plugin() -> None:
    waiting = InputQueue(lambda: None)
    waiting.add_injected("plugin")
    waiting.add_typed("one")
    waiting.add_typed("two")
    assert [waiting.take_back() for _ in range(3)] == ["two", "one", ""]
    assert waiting.texts() == ["plugin"]


def test_a_long_paste_is_folded_and_expanded_when_it_is_sent(tmp_path: Path) -> None:
    pastes = PasteStore(tmp_path)
    assert pastes.fold("short\r\ntext") == "short\ntext"
    long = "\n".join(f"line {number}" for number in range(5_000))
    mark = pastes.fold(long)
    assert mark.startswith("[pasted 5,000 lines #")
    assert pastes.expand(f"look: {mark}!") == f"look: {long}!"
    assert pastes.fold("x" * 3_000).startswith("[pasted 3,000 characters #")
    assert pastes.expand("[pasted 5,000 lines #ffff]") == "[pasted 5,000 lines #ffff]"


def test_a_dropped_file_becomes_a_mention_and_an_image_is_sent(tmp_path: Path) -> None:
    picture, text = tmp_path / "my cat.png", tmp_path / "notes.txt"
    picture.write_bytes(PIXEL)
    text.write_text("x")
    pastes = PasteStore(tmp_path)
    assert pastes.fold(f"'{picture}'") == '@"my cat.png" '
    assert pastes.fold(f"{text} ") == "@notes.txt "
    assert dropped_files("/etc/no-such-file", tmp_path) == []
    images = mentioned_images('what is on @"my cat.png"? and @notes.txt', tmp_path)
    assert images == [picture]
    content, warnings = content_with_images("what?", images)
    assert warnings == []
    assert isinstance(content, list)
    assert content[0] == {"type": "text", "text": "what?"}
    assert content[1]["image_url"]["url"].startswith("data:image/png;base64,iVBORw0KGgo")


def test_an_image_that_is_too_large_or_gone_is_left_out_with_a_warning(tmp_path: Path) -> None:
    large = tmp_path / "large.png"
    large.write_bytes(b"0" * 5_000_001)
    content, warnings = content_with_images("what?", [large, tmp_path / "gone.png"])
    assert content == "what?"
    assert warnings[0] == f"{large} has 5,000,001 bytes; an image of at most 5,000,000 is sent"
    assert "No such file" in warnings[1]


def test_more_skills_are_completed_after_a_skill() -> None:
    assert completions("/tea /to") == [("/toast", "/toast")]
    assert completions("/tea two /tr") == [("/trifle", "/trifle")]
    assert completions("/tea two cups") == []


WL_PASTE = """#!/bin/sh
case "$*" in
  --list-types) cat "$TYPES" 2>/dev/null;;
  "--type image/png") cat "$0.png";;
  --no-newline) printf 'copied\\ntext';;
esac
"""


def clipboard(folder: Path, types: str) -> dict[str, str]:
    """Return an environment with a Wayland clipboard of these types."""
    program = folder / "wl-paste"
    program.write_text(WL_PASTE.replace("$TYPES", str(folder / "types")))
    program.chmod(0o755)
    (folder / "wl-paste.png").write_bytes(PIXEL)
    (folder / "types").write_text(types)
    return {"PATH": f"{folder}:/usr/bin:/bin", "WAYLAND_DISPLAY": "wayland-0"}


def test_an_image_of_the_clipboard_becomes_a_private_file_and_old_ones_go(tmp_path: Path) -> None:
    environ, images = clipboard(tmp_path, "text/html\nimage/png\n"), tmp_path / "images"
    images.mkdir()
    for number in range(60):
        (images / f"clip_2000_{number:02}.png").touch()
    found = paste_from_clipboard(images, environ)
    assert isinstance(found, Path) and found.read_bytes() == PIXEL and found.suffix == ".png"
    assert found.stat().st_mode & 0o777 == 0o600
    assert len(list(images.iterdir())) == 50


def test_a_clipboard_without_an_image_gives_its_text_and_none_is_explained(tmp_path: Path) -> None:
    environ = clipboard(tmp_path, "text/plain\n")
    assert paste_from_clipboard(tmp_path / "images", environ) == "copied\ntext"
    (tmp_path / "wl-paste").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(UserError, match="neither an image nor text"):
        paste_from_clipboard(tmp_path / "images", environ)
    for more, hint in (({"DISPLAY": ":0"}, "Install xclip"), ({"SSH_CONNECTION": "x"}, "Over ssh"), ({}, "with @")):
        with pytest.raises(UserError, match="cannot be read") as caught:
            paste_from_clipboard(tmp_path / "images", {"PATH": "/nonexistent", **more})
        assert hint in (caught.value.hint or "")
