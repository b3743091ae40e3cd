"""When a job is due."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_agent.core.errors import UserError
from hermes_agent.cron.schedule import Schedule, local_zone, parse_schedule

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=BERLIN)  # a Friday


def due(text: str, times: int = 1, now: datetime = NOW) -> list[str]:
    schedule = parse_schedule(text, now.timestamp(), BERLIN)
    found, at = [], now.timestamp()
    for _ in range(times):
        following = schedule.following(at, at, BERLIN)
        assert following is not None
        at = following
        found.append(datetime.fromtimestamp(at, BERLIN).strftime("%a %d %b %H:%M"))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 9 * * 1-5", ["Mon 23 Nov 09:00", "Tue 24 Nov 09:00"]),
        ("@daily", ["Sat 21 Nov 00:00", "Sun 22 Nov 00:00"]),
        ("hourly", ["Fri 20 Nov 13:00", "Fri 20 Nov 14:00"]),
        ("every 90m", ["Fri 20 Nov 13:30", "Fri 20 Nov 15:00"]),
        ("every 2 hours", ["Fri 20 Nov 14:00", "Fri 20 Nov 16:00"]),
        ("every hour", ["Fri 20 Nov 13:00", "Fri 20 Nov 14:00"]),
        ("every day at 9", ["Sat 21 Nov 09:00", "Sun 22 Nov 09:00"]),
        ("Every Monday and Friday at 5:30pm", ["Fri 20 Nov 17:30", "Mon 23 Nov 17:30"]),
        ("mondays, wednesdays at noon", ["Mon 23 Nov 12:00", "Wed 25 Nov 12:00"]),
        ("weekdays at 8:30", ["Mon 23 Nov 08:30", "Tue 24 Nov 08:30"]),
        ("weekends at 12am", ["Sat 21 Nov 00:00", "Sun 22 Nov 00:00"]),
        ("daily at midnight", ["Sat 21 Nov 00:00", "Sun 22 Nov 00:00"]),
    ],
)
def test_what_comes_again(text: str, expected: list[str]) -> None:
    assert due(text, 2) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30m", "Fri 20 Nov 12:30"),
        ("in 2 hours", "Fri 20 Nov 14:00"),
        ("tomorrow at 10:00", "Sat 21 Nov 10:00"),
        ("at 11:00", "Sat 21 Nov 11:00"),
        ("at 13:00", "Fri 20 Nov 13:00"),
        ("2026-12-24 18:00", "Thu 24 Dec 18:00"),
        ("2026-12-24T18:00:00Z", "Thu 24 Dec 19:00"),
    ],
)
def test_what_comes_once(text: str, expected: str) -> None:
    schedule = parse_schedule(text, NOW.timestamp(), BERLIN)
    assert schedule.kind == "once"
    assert due(text) == [expected]
    assert schedule.next_after(schedule.at) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "cannot be read"),
        ("whenever", "cannot be read"),
        ("every blue moon", "cannot be read"),
        ("every day at 25:00", "cannot be read"),
        ("every day at 13pm", "cannot be read"),
        ("61 * * * *", "the cron expression '61 \\* \\* \\* \\*' is wrong"),
        ("every 5s", "more often than once a minute"),
        ("2020-01-01 09:00", "never comes, or is over"),
        ("today at 9:00", "never comes, or is over"),
        ("0 0 30 2 *", "never comes|is wrong"),
    ],
)
def test_what_cannot_be_is_refused_with_examples(text: str, why: str) -> None:
    with pytest.raises(UserError, match=why) as raised:
        parse_schedule(text, NOW.timestamp(), BERLIN)
    assert "every day at 9:00" in (raised.value.hint or "")


def test_an_hour_that_comes_twice_counts_once_and_one_that_is_left_out_is_made_up_for() -> None:
    autumn = datetime(2026, 10, 24, 12, 0, tzinfo=BERLIN)
    assert due("30 2 * * *", 2, autumn) == ["Sun 25 Oct 02:30", "Mon 26 Oct 02:30"]
    spring = datetime(2026, 3, 28, 12, 0, tzinfo=BERLIN)
    first, second = due("30 2 * * *", 2, spring)
    assert first.startswith("Sun 29 Mar")
    assert second == "Mon 30 Mar 02:30"


def test_an_interval_keeps_its_beat_over_a_long_sleep() -> None:
    every = Schedule("interval", "every 10m", seconds=600)
    assert every.following(1_000.0, 1_000.0) == 1_600.0
    assert every.following(1_000.0, 8_000.0) == 8_200.0


@given(st.floats(0, 4e9), st.floats(0, 1e7))
def test_the_time_after_now_is_after_now(due_at: float, late: float) -> None:
    for schedule in (Schedule("interval", "", seconds=60), Schedule("cron", "", expr="*/7 3 * * *")):
        following = schedule.following(due_at, due_at + late, UTC)
        assert following is not None
        assert following > due_at + late


@given(st.text(max_size=40))
def test_no_text_crashes_the_reader(text: str) -> None:
    try:
        assert parse_schedule(text, NOW.timestamp(), BERLIN).next_after(NOW.timestamp(), BERLIN)
    except UserError as exc:
        assert str(exc)


def test_the_machine_s_zone_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    assert local_zone() == BERLIN
    monkeypatch.setenv("TZ", "nowhere/at all")
    assert local_zone() is not None
