"""Cache of room information, dropped when a room changes."""

from .api import MatrixError


class Room:
    """Present state of a room."""

    def __init__(self, name, members, encrypted):
        self.name, self.members, self.encrypted = name, members, encrypted

    @property
    def is_direct(self):
        """Whether the room has at most one other member."""
        return len(self.members) <= 2


class Rooms:
    """The rooms of an account."""

    def __init__(self, api, me):
        self._api, self._me = api, me
        self._known, self._aliases = {}, {}

    def forget(self, room):
        """Drop the information about a room, which has changed."""
        self._known.pop(room, None)

    async def get(self, room):
        """Return a room. Raises MatrixError, MatrixUnreachable."""
        if room not in self._known:
            joined = (await self._api.call("GET", "rooms", room, "joined_members"))["joined"]
            members = {user: (about or {}).get("display_name") or user for user, about in joined.items()}
            name = (await self._state(room, "m.room.name")).get("name")
            others = [shown for user, shown in members.items() if user != self._me]
            encrypted = bool(await self._state(room, "m.room.encryption"))
            self._known[room] = Room(name or ", ".join(others[:3]) or room, members, encrypted)
        return self._known[room]

    async def id_of(self, named):
        """Return the id of a room, which may be named by its alias."""
        if named.startswith("#") and named not in self._aliases:
            self._aliases[named] = (await self._api.call("GET", "directory", "room", named))["room_id"]
        return self._aliases.get(named, named)

    async def _state(self, room, kind):
        try:
            return await self._api.call("GET", "rooms", room, "state", kind)
        except MatrixError as exc:
            if exc.code in ("M_NOT_FOUND", "M_FORBIDDEN"):
                return {}
            raise
