"""The `Application` of python-telegram-bot that handlers of plugins add to, fed with the updates of this adapter."""

import logging
from importlib import import_module

logger = logging.getLogger(__name__)


async def start_application(base_url, token):
    """Return a started `Application`, or None if python-telegram-bot is not installed."""
    try:  # a package of the plugins that need it, and none of this platform
        failed, ext = import_module("telegram.error"), import_module("telegram.ext")
    except ImportError:
        logger.warning("[telegram] plugins registered handlers, which need the package python-telegram-bot")
        return None
    base = base_url.rstrip("/")
    builder = ext.Application.builder().token(token).base_url(f"{base}/bot").base_file_url(f"{base}/file/bot")
    application = builder.updater(None).build()
    try:
        await application.initialize()
        await application.start()
    except failed.TelegramError as exc:
        logger.warning("[telegram] handlers of plugins are not called: %s", exc)
        return None
    return application


async def pass_to_application(application, update):
    """Let handlers of plugins see an update; the adapter handles it all the same."""
    if application is None:
        return
    try:
        parsed = import_module("telegram").Update.de_json(update, application.bot)
        await application.process_update(parsed)
    except Exception as exc:  # noqa: BLE001 - plugin code; the adapter goes on
        logger.warning("[telegram] handler of a plugin raised %s: %s", type(exc).__name__, exc)


async def end_application(application):
    """Stop an application."""
    if application is None:
        return
    try:
        await application.stop()
        await application.shutdown()
    except Exception as exc:  # noqa: BLE001 - it is dropped anyway
        logger.debug("[telegram] application not stopped: %r", exc)
