"""A published platform plugin in a gateway, and a person who talks to it: a process with no network but its own.

`python talk.py PLUGIN SITE PLACE`: prints nothing and ends with 0 when both messages were answered.
"""

from __future__ import annotations

import contextlib
import ssl
import sys
import tomllib
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TESTS))

from compat.published import services  # noqa: E402 - the tests' modules lie there
from hermes_agent.testing import ScriptedModel, plugin_host  # noqa: E402
from hermes_agent.testing.chat import chatting  # noqa: E402
from peers import mail  # noqa: E402

ADDRESS = "1.2.3.4"
"""Of this process's own network: plugins want an address that could be the real one's."""
ANSWERS = ["Hello, Ann.", "It is four."]


class Letters:
    """A mailbox and an SMTP server, as the others have it."""

    def __init__(self, box: mail.Mailbox, post: mail.Post) -> None:
        self._box, self._post = box, post
        self.complaints: list[str] = []

    @property
    def env(self) -> dict[str, str]:
        """What a plugin has to know of them."""
        hosts = {"EMAIL_PP_IMAP_HOST": "127.0.0.1", "EMAIL_PP_SMTP_HOST": "127.0.0.1"}
        ports = {"EMAIL_PP_IMAP_PORT": str(self._box.tls_port), "EMAIL_PP_SMTP_PORT": str(self._post.port)}
        return {**hosts, **ports, "EMAIL_PP_PASSWORD": mail.PASSWORD}

    def hear(self, text: str) -> None:
        """Let somebody write to the agent."""
        letter = EmailMessage()
        letter["From"], letter["To"] = "Ann <ann@example.org>", "agent@example.org"
        letter["Subject"], letter["Message-ID"] = "A question", f"<{abs(hash(text))}@example.org>"
        letter["Date"] = "Thu, 01 Oct 2026 12:00:00 +0000"
        letter.set_content(text)
        self._box.put(letter)

    def until(self, holds: Any) -> None:
        """Wait until what the agent wrote is as it should be."""
        with self._post.changed:
            if not self._post.changed.wait_for(lambda: holds(self._texts()), services.LONGEST_S):
                raise AssertionError(f"the agent wrote {self._texts()}")

    def _texts(self) -> list[str]:
        bodies = (one.get_body(("plain",)) for one in self._post.received)
        return [str(body.get_content()).partition("\n")[0].strip() for body in bodies if body is not None]


@contextlib.contextmanager
def served(about: dict[str, Any], place: Path) -> Iterator[tuple[Any, dict[str, str]]]:
    """Run the service of a plugin, and yield it with what the environment has to say of it."""
    if about["service"] == "mail":
        with mail.dovecot() as box, mail.Post(place) as post:
            trusted = place / "trusted.pem"
            trusted.write_text(Path(box.certificate).read_text() + Path(post.certificate).read_text())
            letters = Letters(box, post)
            yield letters, {**letters.env, "SSL_CERT_FILE": str(trusted)}
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place / "certificate.pem", place / "key.pem")
    with getattr(services, about["service"])(ADDRESS, 443, context) as service:
        yield service, {"SSL_CERT_FILE": str(place / "certificate.pem")}


def main(name: str, site: str, place: Path) -> None:
    """Talk, and see that each message is answered once."""
    sys.path.insert(1, site)
    known = tomllib.loads((TESTS / "data" / "corpus" / "platforms.toml").read_text(encoding="utf-8"))["platform"]
    about = next(one for one in known if one["plugin"] == name)
    for file, text in about.get("files", {}).items():
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        (place / file).write_text(text, encoding="utf-8")
    config = {"platforms": {about["name"]: about["config"]}, "display": {"tool_progress": "off"}}
    own = {key: value.replace("{place}", str(place)) for key, value in about.get("env", {}).items()}
    model = ScriptedModel(*ANSWERS)
    with (
        served(about, place) as (service, env),
        plugin_host(about["entry"], config=config, env={**own, **env}, model=model) as host,
    ):
        try:
            with chatting(host, about["name"]):
                for number, asked in enumerate(("Hello, are you there?", "What is two and two?")):
                    service.hear(asked)
                    service.until(lambda said, n=number: [t for t in said if t in ANSWERS] == ANSWERS[: n + 1])
                    assert asked in str(model.messages[-1]["content"]), model.messages[-1]
            assert service.complaints == []
        except AssertionError:
            print(host.log_text[-6000:], file=sys.stderr)
            raise


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
