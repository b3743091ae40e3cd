"""Who may talk, which commands they may give, which messages of a group are meant, how many are taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes_agent.adapters.config import Platform, PlatformConfig, PlatformEntry
from hermes_agent.adapters.events import MessageEvent, SessionSource
from hermes_agent.contracts.command import Right
from hermes_agent.gateway.access import AccessControl, Admission, PairingStore, may_run_command, principal
from hermes_agent.gateway.intake import RateLimits, is_addressed
from hermes_agent.testing.chat import chat_host

ANN = SessionSource(Platform.TELEGRAM, "c1", user_id="ann")


def access(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: Any = None, **environ: str) -> AccessControl:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    return AccessControl(lambda name: entry, PairingStore(), environ)


def admitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: SessionSource = ANN, **environ: str) -> str:
    extra = {k: v for k, v in environ.items() if not k.isupper()}
    doors = access(tmp_path, monkeypatch, **{k: v for k, v in environ.items() if k.isupper()})
    return doors.admit(source, PlatformConfig(extra=extra)).by


def test_nobody_may_talk_unless_something_lets_them_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert admitted(tmp_path, monkeypatch) == ""


@pytest.mark.parametrize(
    ("environ", "by"),
    [
        ({"TELEGRAM_ALLOWED_USERS": "bob, ann"}, "list"),
        ({"TELEGRAM_ALLOWED_USERS": "bob"}, ""),
        ({"TELEGRAM_ALLOWED_USERS": "*"}, "everybody"),
        ({"TELEGRAM_ALLOW_ALL_USERS": "true"}, "everybody"),
        ({"TELEGRAM_ALLOW_ALL_USERS": "no"}, ""),
        ({"GATEWAY_ALLOWED_USERS": "ann"}, "list"),
        ({"GATEWAY_ALLOW_ALL_USERS": "1"}, "everybody"),
        ({"GATEWAY_ALLOW_ALL_USERS": "1", "TELEGRAM_ALLOWED_USERS": "bob"}, ""),
        ({"SLACK_ALLOWED_USERS": "ann"}, ""),
        ({"allow_from": ["ann"]}, "list"),
        ({"allow_from": "bob,ann"}, "list"),
        ({"allow_all_users": True}, "everybody"),
        ({"allow_all_users": "yes"}, ""),
    ],
)
def test_variables_and_config_keys_let_people_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, Any], by: str
) -> None:
    assert admitted(tmp_path, monkeypatch, **environ) == by


def test_a_plugin_names_its_own_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = PlatformEntry("telegram", "T", lambda c: None, lambda: True, allowed_users_env="MINE", allow_all_env="ALL")

    assert access(tmp_path, monkeypatch, entry, MINE="ann").admit(ANN, PlatformConfig()).by == "list"
    assert access(tmp_path, monkeypatch, entry, ALL="true").admit(ANN, PlatformConfig()).by == "everybody"
    assert access(tmp_path, monkeypatch, entry, TELEGRAM_ALLOWED_USERS="ann").admit(ANN, PlatformConfig()).by == ""


def test_a_pairing_lets_in_and_its_end_lets_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doors = access(tmp_path, monkeypatch)
    store = PairingStore()
    code = store.generate_code("telegram", "ann")
    assert code is not None
    assert not doors.admit(ANN, PlatformConfig()).is_allowed

    store.approve_code("telegram", code)
    assert doors.admit(ANN, PlatformConfig()) == Admission("pairing")

    store.revoke("telegram", "ann")
    assert not doors.admit(ANN, PlatformConfig()).is_allowed


def test_the_service_s_own_rules_count_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Own:
        enforces_own_access_policy = True

    doors = access(tmp_path, monkeypatch)
    role = SessionSource(Platform.TELEGRAM, "c1", user_id="ann", role_authorized=True)

    assert doors.admit(role, PlatformConfig()).by == "role"
    assert doors.admit(ANN, PlatformConfig(), Own()).by == "platform"
    assert doors.admit(SessionSource(Platform.TELEGRAM, "c1"), PlatformConfig(), Own()).by == ""


def test_a_bot_comes_in_by_name_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bot = SessionSource(Platform.TELEGRAM, "c1", user_id="robo", is_bot=True)

    assert admitted(tmp_path, monkeypatch, bot, GATEWAY_ALLOW_ALL_USERS="1") == ""
    assert admitted(tmp_path, monkeypatch, bot, TELEGRAM_ALLOWED_USERS="robo") == "list"


def test_who_came_through_an_open_door_approves_nothing() -> None:
    listed, anybody = Admission("list"), Admission("everybody")
    plain = PlatformConfig()

    assert may_run_command("approve", "known", ANN, listed, plain)
    assert not may_run_command("approve", "known", ANN, anybody, plain)
    assert all(may_run_command("new", right, ANN, anybody, plain) for right in ("always", "anyone"))


def test_what_changes_the_agent_wants_a_user_who_was_allowed_by_name() -> None:
    with chat_host() as chat:
        chat.gateway.session_store  # noqa: B018 - declares the commands of chats
        commands = chat.host.host.commands.commands("chat")
    by_right = {right: {c.name for c in commands if c.right == right} for right in ("known", "always")}
    assert by_right["known"] == {"approve", "model", "plugins", "proposals", "restart", "rollback", "sethome"}
    assert by_right["always"] == {"help", "whoami", "status", "stop", "deny"}


def test_with_a_list_of_admins_the_others_have_what_is_listed() -> None:
    config = PlatformConfig(
        extra={"allow_admin_from": ["boss"], "user_allowed_commands": ["/new"], "group_allow_admin_from": "ann"}
    )
    boss = SessionSource(Platform.TELEGRAM, "c1", user_id="boss")
    group = SessionSource(Platform.TELEGRAM, "g1", chat_type="group", user_id="ann")

    def given(source: SessionSource) -> list[str]:
        rights: dict[str, Right] = {"approve": "known", "new": "anyone", "model": "known", "whoami": "always"}
        return [n for n, right in rights.items() if may_run_command(n, right, source, Admission("list"), config)]

    assert given(boss) == ["approve", "new", "model", "whoami"]
    assert given(ANN) == ["new", "whoami"]
    assert given(group) == ["approve", "new", "model", "whoami"]


def test_a_principal_is_one_person_of_one_platform() -> None:
    assert principal(ANN) == "telegram:ann"
    assert principal(SessionSource(Platform.SIGNAL, "c", user_id="+1", user_id_alt="uuid")) == "signal:uuid"


# -- groups ----------------------------------------------------------------------------------------------------------


def meant(text: str = "hello", extra: dict[str, Any] | None = None, chat: str = "g1", **event: Any) -> bool:
    source = SessionSource(Platform.TELEGRAM, chat, chat_type="group", user_id="ann")
    return is_addressed(MessageEvent(text, **event), source, PlatformConfig(extra=extra or {}))


def test_in_a_group_the_adapter_decides_unless_the_operator_does() -> None:
    assert meant()
    assert meant(metadata={"addressed": True})
    assert not meant(metadata={"addressed": False})
    assert meant(extra={"require_mention": False}, metadata={"addressed": False})
    assert meant(metadata={"addressed": False}, reply_to_is_own_message=True)
    assert meant("/status", metadata={"addressed": False})
    assert meant(extra={"free_response_chats": ["g1"]}, metadata={"addressed": False})


def test_patterns_are_mentions_and_a_broken_one_matches_nothing() -> None:
    extra = {"mention_patterns": ["^hermes\\b", "("]}
    assert meant("Hermes, what is up?", extra)
    assert not meant("what is up?", extra)
    assert meant("what is up?", {**extra, "require_mention": False})


def test_other_rooms_than_the_listed_ones_are_not_heard_but_direct_chats_are() -> None:
    extra = {"allowed_chats": ["g1"]}
    assert meant(extra=extra)
    assert not meant(extra=extra, chat="g2")
    assert is_addressed(MessageEvent("hello"), ANN, PlatformConfig(extra=extra))


# -- how many --------------------------------------------------------------------------------------------------------


def test_a_minute_has_its_limit_for_each_and_frees_itself() -> None:
    now = [0.0]
    rates = RateLimits(lambda: now[0])

    assert [rates.count_message("ann", 2) for _ in range(3)] == [True, True, False]
    assert rates.count_message("bob", 2)
    assert all(rates.count_message("any", 0) for _ in range(100))
    now[0] = 60.0
    assert rates.count_message("ann", 2)


def test_somebody_is_told_once_in_a_while() -> None:
    now = [0.0]
    rates = RateLimits(lambda: now[0])

    assert [rates.may_warn("ann"), rates.may_warn("ann"), rates.may_warn("bob")] == [True, False, True]
    now[0] = 600.0
    assert rates.may_warn("ann")
