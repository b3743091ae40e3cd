"""Sending of a mail through the SMTP server, and the result."""

import logging
import smtplib
import ssl

from hermes_agent.adapters.events import SendResult

logger = logging.getLogger(__name__)

CONNECT_S = 60.0


def send_mail(settings, message):
    """Send a mail; blocks. A failure before the transfer is retryable; a later one has an unknown result."""
    identity = message["Message-ID"]
    try:
        server = _open(settings)
    except smtplib.SMTPAuthenticationError as exc:
        return SendResult(False, error=f"the SMTP server rejected the password: {exc.smtp_code}", retryable=True)
    except (OSError, smtplib.SMTPException) as exc:
        return SendResult(False, error=f"no connection to {settings.smtp_host}: {exc}", retryable=True)
    try:
        server.send_message(message)
    except smtplib.SMTPRecipientsRefused as exc:
        (code, text), *_ = exc.recipients.values()
        return _refused(code, text)
    except smtplib.SMTPResponseException as exc:
        return _refused(exc.smtp_code, exc.smtp_error)
    except (OSError, smtplib.SMTPException) as exc:
        logger.warning("[email] %s failed after a mail was transferred: %r", settings.smtp_host, exc)
        return SendResult(False, error="timed out: the mail may have been accepted", error_kind="unknown")
    finally:
        _end(server)
    return SendResult(True, message_id=identity)


def try_login(settings):
    """Log in and log out; blocks. Raises OSError, SMTPException."""
    _end(_open(settings))


def _open(settings):
    tls = ssl.create_default_context() if settings.smtp_security != "none" else None
    if settings.smtp_security == "tls":
        server = smtplib.SMTP_SSL(settings.smtp_host, settings.smtp_port, timeout=CONNECT_S, context=tls)
    else:
        server = smtplib.SMTP(settings.smtp_host, settings.smtp_port, timeout=CONNECT_S)
    try:
        if settings.smtp_security == "starttls":
            server.starttls(context=tls)
        server.ehlo_or_helo_if_needed()
        if server.has_extn("auth"):
            server.login(settings.user or settings.address, settings.password)
    except BaseException:
        server.close()
        raise
    return server


def _refused(code, text):
    reply = f"{code} {text.decode(errors='replace') if isinstance(text, bytes) else text}"
    if 400 <= code < 500:
        return SendResult(False, error=reply, retryable=True, error_kind="transient")
    kind = "too_long" if code == 552 else "not_found" if code in (550, 551, 553) else "forbidden"
    return SendResult(False, error=reply, error_kind=kind)


def _end(server):
    try:
        server.quit()
    except (OSError, smtplib.SMTPException):
        server.close()
