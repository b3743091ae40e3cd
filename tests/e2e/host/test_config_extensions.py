"""What the config and files of the home add without code: commands, prompts, bundles, personalities, skins, servers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hermes_agent.agent.personalities import Personalities
from hermes_agent.app.main import main
from hermes_agent.config import load
from hermes_agent.config.settings import Settings
from hermes_agent.console.skins import load_skins, make_theme
from hermes_agent.console.styled import Piece
from hermes_agent.skills.prompts import fill_prompt
from hermes_agent.testing.chat import Chat, chat_host
from hermes_agent.testing.open_host import plugin_host


def write(home: Path, **files: str) -> None:
    for name, text in files.items():
        path = home / name.replace("__", "/").replace("_yaml", ".yaml").replace("_md", ".md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


REVIEW = (
    "---\ndescription: Review a file\nargument-hint: FILE [FOCUS]\n---\nReview $1 for $2. All: $ARGUMENTS. Cost: $$5\n"
)


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("Review $1 for $2.", "a.py 'two words' x", "Review a.py for two words."),
        ("Review $1 for $2.", "a.py", "Review a.py for ."),
        ("Do $ARGUMENTS now", "this and that", "Do this and that now"),
        ("$$1 and $1", "x", "$1 and x"),
        ("No place.", "more words", "No place.\n\nmore words"),
        ("No place.", "", "No place."),
        ("Say $1", "an 'open quote", "Say an"),
        ("Arguments are data: $1", "'$2 $ARGUMENTS'", "Arguments are data: $2 $ARGUMENTS"),
    ],
)
def test_a_prompt_is_filled_with_its_arguments(text: str, arguments: str, message: str) -> None:
    assert fill_prompt(text, arguments) == message


def asked(chat: Chat) -> str:
    return str(chat.host.model.messages[-1]["content"])


def test_prompts_and_bundles_are_commands_of_a_chat_and_listed_in_its_help() -> None:
    with chat_host(model=["reviewed", "brewed", "bundled"]) as chat:
        home = chat.host.host.home
        write(home, prompts__review_md=REVIEW, skills__tea__SKILL_md="---\ndescription: Brew tea\n---\nWarm the pot.\n")
        write(home, **{"skill-bundles__morning_yaml": "skills: [tea, absent]\ninstruction: Be quick.\n"})
        assert chat.ask("/review a.py speed") == "reviewed"
        assert asked(chat) == "Review a.py for speed. All: a.py speed. Cost: $5"
        assert chat.ask("/morning two cups") == "brewed"
        text = asked(chat)
        assert "Warm the pot." in text and "Be quick." in text and text.endswith("two cups")
        assert "'morning' names skills that are not there: absent" in text
        said = chat.ask("/help review")
        assert said == "/review FILE [FOCUS]: Review a file"


def test_a_personality_is_chosen_for_a_session_and_stays_with_it() -> None:
    config = {"personalities": {"pirate": {"prompt": "Speak like a pirate.", "description": "arr"}}}
    with chat_host(config=config, model=["one", "two", "three"]) as chat:

        def system() -> str:
            return str(chat.host.model.messages[0]["content"])

        assert chat.ask("/personality pirate") == "Personality: pirate."
        chat.ask("hello")
        assert system().endswith("## Personality: pirate\nSpeak like a pirate.\n(End of the personality.)")
        assert chat.ask("/personality").startswith("Personality: pirate. /personality NAME")
        chat.wait(lambda: any("technical" in sent.text for sent in chat.adapter.sent))
        assert chat.ask("/personality concise") == "Personality: concise."
        chat.ask("again")
        assert "pirate" not in system() and system().count("## Personality:") == 1
        assert chat.ask("/personality pirat") == (
            "There is no personality 'pirat'. Did you mean pirate? /personality lists them."
        )
        assert chat.ask("/personality none") == "No personality from the next message on."
        chat.ask("plain")
        assert "## Personality" not in system()


def test_the_personality_of_the_config_is_that_of_new_sessions() -> None:
    with plugin_host(lambda ctx: None, config={"display": {"personality": "teacher"}}, model=["yes"]) as host:
        host.ask("hello")
        assert "## Personality: teacher\nExplain each step" in host.model.messages[0]["content"]


def test_a_text_in_the_prompt_cannot_be_taken_for_the_end_of_another_personality() -> None:
    known = Personalities(lambda: Settings({"personalities": {"a": "First.", "b": "Second."}}))
    prompt = known.replace("Base.", "a")
    assert known.replace(prompt, "b") == "Base.\n\n## Personality: b\nSecond.\n(End of the personality.)"
    assert known.replace(known.replace(prompt, "b"), "none") == "Base."


def test_quick_commands_work_for_one_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, "HERMES_HOME": str(tmp_path)})
    quick = {"disk": {"command": 'echo "free: $1 of $#"'}, "d": {"type": "alias", "target": "/disk"}}
    quick |= {"loop": {"type": "alias", "target": "loop"}}
    (tmp_path / "config.yaml").write_text(json.dumps({"quick_commands": quick}))

    def ask(question: str) -> tuple[int, str]:
        status = main(["-z", question])
        return status, capsys.readouterr().out.strip()

    assert ask("/disk 'a;id' b") == (0, "free: a;id of 2")
    assert ask("/d x") == (0, "free: x of 1")
    assert ask("/loop") == (2, "")


def test_a_skin_changes_the_looks_that_it_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(
        tmp_path,
        skins__night_yaml="description: For the night\nextends: light\n"
        "styles: {code: '#102030 bold', nothing: red, ok: pink}\n",
        skins__gold_yaml="name: gold\ncolors: {banner_title: '#FFD700', ui_error: '#ff0000', other: 3}\n",
        skins__dark_yaml="styles: {code: red}\n",
        skins__broken_yaml="[",
    )
    found = load_skins(tmp_path)
    assert list(found) == ["dark", "light", "high-contrast", "none", "gold", "night"]
    assert make_theme(tmp_path, "night").ansi((Piece("code", "x"),)) == "\x1b[38;2;16;32;48;1mx\x1b[0m"
    assert ("heading", "#FFD700") in make_theme(tmp_path, "gold").rules()
    assert make_theme(tmp_path, "unknown").name == "dark"
    assert make_theme(tmp_path, "gold", has_colour=False).ansi((Piece("heading", "x"),)) == "\x1b[1mx\x1b[0m"
    for said in (
        "styles.nothing: there is no such style",
        "'pink' is no look",
        "dark is a theme",
        "broken.yaml: not used",
    ):
        assert said in caplog.text


def test_servers_of_upstreams_list_are_providers(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "model: {provider: 'custom:My Server', default: m}\n"
        "custom_providers:\n"
        "- {name: My Server, base_url: 'http://127.0.0.1:9/v1', key_env: MINE, model: small}\n"
        "- {name: taken, base_url: 'http://127.0.0.1:1/v1'}\n"
        "- {base_url: 'http://127.0.0.1:2/v1'}\n"
        "providers:\n  taken: {base_url: 'http://127.0.0.1:3/v1'}\n"
    )
    config = load(tmp_path)
    servers = config.get("providers")
    assert set(servers) == {"my-server", "taken"}
    assert (servers["my-server"]["base_url"], servers["my-server"]["api_key_env"]) == ("http://127.0.0.1:9/v1", "MINE")
    assert servers["taken"]["base_url"] == "http://127.0.0.1:3/v1"
    assert config.get("model.provider") == "my-server"


def test_everything_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, "HERMES_HOME": str(tmp_path)})
    (tmp_path / "config.yaml").write_text(
        "model: {provider: mine, default: m}\n"
        "custom_providers: [{name: mine, base_url: 'http://127.0.0.1:9/v1'}]\n"
        "personalities: {pirate: Speak like a pirate.}\n"
        "quick_commands: {disk: {command: df, description: how full}}\n"
    )
    write(tmp_path, prompts__review_md=REVIEW, skins__night_yaml="description: For the night\n")
    write(tmp_path, skills__tea__SKILL_md="---\ndescription: Brew tea\n---\n.\n")
    write(tmp_path, **{"skill-bundles__morning_yaml": "skills: [tea]\n"})
    assert main(["commands", "--json"]) == 0
    rows = {(row["kind"], row["use"]): row["description"] for row in json.loads(capsys.readouterr().out)}
    assert {
        ("quick", "/disk"): "how full",
        ("prompt", "/review FILE [FOCUS]"): "Review a file",
        ("bundle", "/morning [what to do]"): "the skills tea",
        ("skill", "/tea [what to do]"): "Brew tea",
        ("personality", "/personality pirate"): "Speak like a pirate.",
        ("skin", "/skin night"): "For the night",
        ("provider", "model.provider: mine"): "http://127.0.0.1:9/v1",
    }.items() <= rows.items()
    assert ("builtin", "/personality [NAME|none]") in rows
    assert main(["commands", "--kind", "quick"]) == 0
    assert capsys.readouterr().out == "quick  /disk  how full\n"
