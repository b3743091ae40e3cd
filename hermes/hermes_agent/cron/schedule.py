"""Schedules of jobs: cron expressions, intervals, single times; and their forms in words."""

from __future__ import annotations

import math
import os
import re
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

from hermes_agent.core.errors import UserError
from hermes_agent.core.lazy_types import LazyNamedTuple

LEAST_S = 60
"""The shortest interval, in seconds."""
ALIASES = {
    "hourly": "0 * * * *",
    "daily": "0 0 * * *",
    "midnight": "0 0 * * *",
    "weekly": "0 0 * * 0",
    "monthly": "0 0 1 * *",
    "yearly": "0 0 1 1 *",
    "annually": "0 0 1 1 *",
}
DAYS = {"sunday": 0, "monday": 1, "tuesday": 2, "wednesday": 3, "thursday": 4, "friday": 5, "saturday": 6}
GROUPS = {"day": "*", "weekday": "1-5", "weekdays": "1-5", "weekend": "0,6", "weekends": "0,6", "daily": "*"}
UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
HINT = (
    "For example `every 30m`, `every day at 9:00`, `weekdays at 8:30`, `every monday and friday at 17:00`, "
    "`0 9 * * 1-5`; once: `in 2h`, `tomorrow at 10:00`, `2030-01-31 09:00`."
)

_LENGTH = re.compile(r"(\d+)\s*(s|m|h|d|w)\w*")
_TIME = re.compile(r"(\d{1,2})(?::(\d{2}))?\s*(am|pm)?")


class Schedule(LazyNamedTuple):
    """A schedule of one of three kinds. `text`: what the user wrote."""

    kind: str
    """`cron`, `interval` or `once`."""
    text: str
    expr: str = ""
    """Five fields, for `cron`."""
    seconds: int = 0
    """Length of an `interval`."""
    at: float = 0.0
    """Time of `once`, in seconds since the epoch."""

    def next_after(self, after: float, zone: tzinfo | None = None) -> float | None:
        """Return the first time after `after`, both in seconds since the epoch, or None.

        Args:
            zone: time zone of a cron expression; None takes this machine's. A time in an hour that summer time skips
                comes after it; one in a repeated hour comes once.
        """
        if self.kind == "once":
            return self.at if self.at > after else None
        if self.kind == "interval":
            return after + self.seconds
        from cronsim import CronSim  # most processes have no schedule

        try:
            return next(CronSim(self.expr, datetime.fromtimestamp(after, zone or local_zone()))).timestamp()
        except StopIteration:  # the 30th of February
            return None

    def following(self, due: float, now: float, zone: tzinfo | None = None) -> float | None:
        """Return the first time after `now` of a job that was due at `due`; an interval counts from `due`."""
        if self.kind == "interval":
            return due + self.seconds * (math.floor(max(now - due, 0) / self.seconds) + 1)
        return self.next_after(max(due, now), zone)

    def to_dict(self) -> dict[str, object]:
        """Return the schedule in upstream's form: `kind`, `display`, and `expr`, `minutes` or `run_at`."""
        if self.kind == "once":
            return {"kind": "once", "display": self.text, "run_at": datetime.fromtimestamp(self.at, UTC).isoformat()}
        more = {"expr": self.expr} if self.kind == "cron" else {"minutes": self.seconds / 60}
        return {"kind": self.kind, "display": self.text, **more}


def parse_schedule(text: str, now: float, zone: tzinfo | None = None) -> Schedule:
    """Return the schedule that a text describes.

    Args:
        now: present time in seconds since the epoch, for `in 2h` and `tomorrow`.
        zone: None takes this machine's time zone.

    Raises:
        UserError: the text cannot be read, its time is over, or it comes too often.
    """
    shown = " ".join(str(text).split())
    words = shown.lower()
    local_now = datetime.fromtimestamp(now, zone or local_zone())
    found = _cron(shown, words) or _interval(shown, words) or _calendar(shown, words) or _once(shown, words, local_now)
    if found is None:
        raise UserError(f"the schedule {shown!r} cannot be read", hint=HINT)
    if found.kind == "interval" and found.seconds < LEAST_S:
        raise UserError(f"the schedule {shown!r} comes more often than once a minute", hint=HINT)
    if found.next_after(now, zone) is None:
        raise UserError(f"the schedule {shown!r} never comes, or is over", hint=HINT)
    return found


def local_zone() -> tzinfo:
    """Return this machine's time zone with summer time: `TZ`, else `/etc/localtime`, else UTC."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # it imports `sysconfig`, which a start does not need

    name = os.environ.get("TZ", "").lstrip(":")
    link = os.path.realpath("/etc/localtime").partition("zoneinfo/")[2]
    for key in (name, link):
        try:
            if key and not key.startswith("/"):
                return ZoneInfo(key)
        except (ZoneInfoNotFoundError, ValueError):
            continue
    try:
        with Path("/etc/localtime").open("rb") as file:
            return ZoneInfo.from_file(file)
    except (OSError, ValueError):
        return UTC


def _cron(shown: str, words: str) -> Schedule | None:
    expr = ALIASES.get(words.removeprefix("@"), words if len(words.split()) == 5 else "")
    if not expr or not re.fullmatch(r"[\d*,/\-#? a-z]+", expr):
        return None
    from cronsim import CronSim, CronSimError  # as above

    try:
        CronSim(expr, datetime.now(UTC))
    except CronSimError as exc:
        if words[0].isalpha():  # it is no cron expression
            return None
        raise UserError(f"the cron expression {shown!r} is wrong: {exc}", hint=HINT) from exc
    return Schedule("cron", shown, expr=expr)


def _interval(shown: str, words: str) -> Schedule | None:
    rest = words.removeprefix("every ").strip()
    if rest == words:
        return None
    match = _LENGTH.fullmatch(rest) or _LENGTH.fullmatch(f"1 {rest}")
    if match is None or rest in GROUPS:
        return None
    return Schedule("interval", shown, seconds=_seconds(match))


def _calendar(shown: str, words: str) -> Schedule | None:
    """Read `every monday and friday at 9`, `weekdays at 8:30`, `daily at 9pm`."""
    days, at, time = words.removeprefix("every ").partition(" at ")
    if not at:
        return None
    moment = _clock(time)
    names = [name for name in re.split(r"\s*(?:,|\band\b|\s)\s*", days) if name]
    chosen = [_day(name) for name in names]
    if moment is None or not chosen or None in chosen:
        return None
    weekdays = ",".join(str(day) for day in chosen)
    return Schedule("cron", shown, expr=f"{moment[1]} {moment[0]} * * {'*' if '*' in chosen else weekdays}")


def _day(name: str) -> str | None:
    if name in GROUPS:
        return GROUPS[name]
    short = name.removesuffix("s")
    found = [number for day, number in DAYS.items() if short == day or (len(short) >= 3 and day.startswith(short))]
    return str(found[0]) if found else None


def _once(shown: str, words: str, now: datetime) -> Schedule | None:
    match = _LENGTH.fullmatch(words.removeprefix("in ").strip())
    if match is not None:
        return Schedule("once", shown, at=now.timestamp() + _seconds(match))
    for prefix, days in (("tomorrow at ", 1), ("today at ", 0), ("at ", None)):
        moment = _clock(words.removeprefix(prefix)) if words.startswith(prefix) else None
        if moment is not None:
            at = (now + timedelta(days=days or 0)).replace(hour=moment[0], minute=moment[1], second=0, microsecond=0)
            if days is None and at <= now:
                at += timedelta(days=1)
            return Schedule("once", shown, at=at.timestamp())
    try:
        at = datetime.fromisoformat(shown)
    except ValueError:
        return None
    return Schedule("once", shown, at=(at if at.tzinfo else at.replace(tzinfo=now.tzinfo)).timestamp())


def _clock(words: str) -> tuple[int, int] | None:
    match = {"noon": _TIME.fullmatch("12:00"), "midnight": _TIME.fullmatch("0:00")}.get(words.strip())
    match = match or _TIME.fullmatch(words.strip())
    if match is None:
        return None
    hour, minute, half = int(match[1]), int(match[2] or 0), match[3]
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half == "pm" else 0)
    return (hour, minute) if hour < 24 and minute < 60 else None


def _seconds(match: re.Match[str]) -> int:
    return int(match[1]) * UNITS[match[2]]
