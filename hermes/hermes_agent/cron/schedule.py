"""When a job is due: cron expressions, intervals, points in time, and the words that people use for them."""

from __future__ import annotations

import math
import os
import re
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import NamedTuple

from hermes_agent.core.errors import UserError

LEAST_S = 60
"""The shortest interval."""
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


class Schedule(NamedTuple):
    """One of three kinds; `text` is what the person wrote."""

    kind: str
    """`cron`, `interval` or `once`."""
    text: str
    expr: str = ""
    """Of `cron`: five fields."""
    seconds: int = 0
    """Of `interval`."""
    at: float = 0.0
    """Of `once`: seconds since the epoch."""

    def next_after(self, after: float, zone: tzinfo | None = None) -> float | None:
        """Return the first time after `after`, both in seconds since the epoch; None when there is none.

        Args:
            zone: where the fields of a cron expression count; None means this machine's. An hour that summer time
                leaves out is made up for, one that it repeats counts once.
        """
        if self.kind == "once":
            return self.at if self.at > after else None
        if self.kind == "interval":
            return after + self.seconds
        from cronsim import CronSim  # only who schedules something pays for it

        try:
            return next(CronSim(self.expr, datetime.fromtimestamp(after, zone or local_zone()))).timestamp()
        except StopIteration:  # the 30th of February
            return None

    def following(self, due: float, now: float, zone: tzinfo | None = None) -> float | None:
        """Return the first time after `now` of what was due at `due`: an interval keeps its beat."""
        if self.kind == "interval":
            return due + self.seconds * (math.floor(max(now - due, 0) / self.seconds) + 1)
        return self.next_after(max(due, now), zone)

    def to_dict(self) -> dict[str, object]:
        """Return it in upstream's shape: `kind`, `display`, and `expr`, `minutes` or `run_at`."""
        if self.kind == "once":
            return {"kind": "once", "display": self.text, "run_at": datetime.fromtimestamp(self.at, UTC).isoformat()}
        more = {"expr": self.expr} if self.kind == "cron" else {"minutes": self.seconds / 60}
        return {"kind": self.kind, "display": self.text, **more}


def parse_schedule(text: str, now: float, zone: tzinfo | None = None) -> Schedule:
    """Read a schedule.

    Args:
        now: what `in 2h` and `tomorrow` count from, seconds since the epoch.
        zone: None means this machine's.

    Raises:
        UserError: it cannot be read, is over already, or comes too often.
    """
    shown = " ".join(str(text).split())
    words = shown.lower()
    here = datetime.fromtimestamp(now, zone or local_zone())
    found = _cron(shown, words) or _interval(shown, words) or _calendar(shown, words) or _once(shown, words, here)
    if found is None:
        raise UserError(f"the schedule {shown!r} cannot be read", hint=HINT)
    if found.kind == "interval" and found.seconds < LEAST_S:
        raise UserError(f"the schedule {shown!r} comes more often than once a minute", hint=HINT)
    if found.next_after(now, zone) is None:
        raise UserError(f"the schedule {shown!r} never comes, or is over", hint=HINT)
    return found


def local_zone() -> tzinfo:
    """Return this machine's time zone with its changes to summer time: `TZ`, else `/etc/localtime`, else UTC."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # with `sysconfig`: only where a schedule is read

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
        if words[0].isalpha():  # words after all
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


def _once(shown: str, words: str, here: datetime) -> Schedule | None:
    match = _LENGTH.fullmatch(words.removeprefix("in ").strip())
    if match is not None:
        return Schedule("once", shown, at=here.timestamp() + _seconds(match))
    for prefix, days in (("tomorrow at ", 1), ("today at ", 0), ("at ", None)):
        moment = _clock(words.removeprefix(prefix)) if words.startswith(prefix) else None
        if moment is not None:
            at = (here + timedelta(days=days or 0)).replace(hour=moment[0], minute=moment[1], second=0, microsecond=0)
            if days is None and at <= here:
                at += timedelta(days=1)
            return Schedule("once", shown, at=at.timestamp())
    try:
        at = datetime.fromisoformat(shown)
    except ValueError:
        return None
    return Schedule("once", shown, at=(at if at.tzinfo else at.replace(tzinfo=here.tzinfo)).timestamp())


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
