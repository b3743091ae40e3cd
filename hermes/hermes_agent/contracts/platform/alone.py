"""Send without a gateway: what `standalone_sender_fn` of most platforms does. Source: plugin contract §8.2.1."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_agent.contracts.platform.adapter import BasePlatformAdapter
    from hermes_agent.contracts.platform.results import SendResult

__all__ = ["standalone_attempt", "send_standalone", "standalone_sender"]


def standalone_sender(
    make: Callable[[Any], Any], begin: str, end: str = ""
) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Return a `standalone_sender_fn`.

    Args:
        make: makes an adapter of a `PlatformConfig`.
        begin, end: the adapter's methods that make it ready to send, and end that; sync or async.
    """

    async def send_alone(
        config: Any,
        chat_id: str,
        message: str,
        *,
        thread_id: str | None = None,
        media_files: Iterable[tuple[str, bool]] | None = None,
        force_document: bool = False,
    ) -> dict[str, Any]:
        adapter = make(config)
        try:
            await _await_result(getattr(adapter, begin)())
            return await send_standalone(
                adapter, chat_id, message, media_files, thread_id=thread_id, force_document=force_document
            )
        except Exception as exc:  # noqa: BLE001 - whoever asked is told
            return {"success": False, "error": f"{type(exc).__name__}: {exc}"}
        finally:
            await _await_result(getattr(adapter, end)() if end else None)

    return send_alone


def standalone_attempt(
    make: Callable[[Any], Any], begin: str, end: str = ""
) -> Callable[[Any], Coroutine[Any, Any, Any]]:
    """Return an `attempt_fn`: connect with a config, and disconnect; it raises what the adapter raises.

    What `begin` returns is what the attempt returns.

    Args:
        make, begin, end: as those of `sender`.
    """

    async def attempt(config: Any) -> Any:
        adapter = make(config)
        try:
            return await _await_result(getattr(adapter, begin)())
        finally:
            await _await_result(getattr(adapter, end)() if end else None)

    return attempt


async def _await_result(value: Any) -> Any:
    return await value if isinstance(value, Awaitable) else value


async def send_standalone(
    adapter: BasePlatformAdapter,
    chat_id: str,
    message: str,
    media_files: Iterable[tuple[str, bool]] | None = None,
    *,
    thread_id: str | None = None,
    force_document: bool = False,
) -> dict[str, Any]:
    """Send a text, cut as the platform needs it, and the files that may be sent; return what became of the last part.

    Args:
        adapter: ready to send.
        media_files: path, and whether it is a voice message, of each.

    Raises:
        Exception: whatever the adapter raises.
    """
    metadata = {"thread_id": thread_id} if thread_id else None
    result: SendResult | None = None
    limit = getattr(adapter, "MAX_MESSAGE_LENGTH", 4096)
    for part in adapter.truncate_message(message, limit, adapter.message_len_fn):
        result = await adapter.send(chat_id, part, metadata=metadata) if part.strip() else result
    for path, is_voice in adapter.filter_media_delivery_paths(list(media_files or ())):
        send = adapter.send_voice if is_voice and not force_document else adapter.send_document
        result = await send(chat_id, path, metadata=metadata)
    if result is None:
        return {"success": False, "error": "there is nothing to send"}
    return {"success": result.success, "message_id": result.message_id, "error": result.error}
