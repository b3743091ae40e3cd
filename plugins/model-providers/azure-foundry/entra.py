"""Access tokens of Microsoft Entra ID, by azure-identity: workload identity, service principal, managed identity, `az`.

https://learn.microsoft.com/azure/ai-foundry/openai/how-to/managed-identity
"""

from __future__ import annotations

import functools
import os
import threading
from typing import TYPE_CHECKING

from hermes_agent.contracts.model_provider import NotSignedIn

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential

WAYS = "AZURE_FEDERATED_TOKEN_FILE or AZURE_CLIENT_SECRET with AZURE_TENANT_ID and AZURE_CLIENT_ID, or `az login`"
KEY = "or set AZURE_FOUNDRY_API_KEY"
SUFFIXES = {".azure.us": "cognitiveservices.azure.us", ".azure.cn": "cognitiveservices.azure.cn"}
"""Audience of tokens by the end of a resource's host; elsewhere `PUBLIC`."""
PUBLIC = "cognitiveservices.azure.com"


class EntraTokens:
    """The credential of this process; azure-identity keeps a token until it is about to end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._credential: TokenCredential | None = None

    def token(self, host: str, *, again: bool = False) -> str:
        """Return a token for the resource at `host`.

        Args:
            again: the last token was refused; its credential is made anew, without the tokens that it keeps.

        Raises:
            NotSignedIn: azure-identity is not installed, or no credential gives a token.
        """
        with self._lock:
            if self._credential is None or again:
                self._credential = _make_credential()
            return _request_token(self._credential, scope_of(host))


@functools.cache
def tokens() -> EntraTokens:
    """Return the tokens of this process."""
    return EntraTokens()


def scope_of(host: str) -> str:
    """Return the scope of tokens for a resource at `host`, by its cloud."""
    audience = next((name for suffix, name in SUFFIXES.items() if host.endswith(suffix)), PUBLIC)
    return f"https://{audience}/.default"


def describe_account() -> str:
    """Return which credential is used, by the environment.

    Raises:
        NotSignedIn: azure-identity is not installed.
    """
    _require_library()
    client = os.environ.get("AZURE_CLIENT_ID", "")
    if os.environ.get("AZURE_CLIENT_SECRET") or os.environ.get("AZURE_CLIENT_CERTIFICATE_PATH"):
        return f"the service principal {client} of Entra ID"
    if file := os.environ.get("AZURE_FEDERATED_TOKEN_FILE"):
        return f"the workload identity {client} ({file})"
    return "the managed identity of this machine, or the account of `az login`"


def _require_library() -> None:
    try:
        import azure.identity  # noqa: F401 - its absence is what is looked for
    except ImportError:
        hint = f"Install the extra `azure-identity` (`hermes doctor` says how; on NixOS extraDependencyGroups), {KEY}."
        raise NotSignedIn("Tokens of Entra ID need azure-identity, which is not installed.", hint) from None


def _make_credential() -> TokenCredential:
    _require_library()
    from azure.identity import DefaultAzureCredential

    try:
        return DefaultAzureCredential(
            exclude_shared_token_cache_credential=True,
            exclude_visual_studio_code_credential=True,
            exclude_powershell_credential=True,
            exclude_broker_credential=True,
            # a cloud of one's own is not in the list that Microsoft's public directory gives
            disable_instance_discovery=bool(os.environ.get("AZURE_AUTHORITY_HOST")),
        )
    except ValueError as exc:
        raise NotSignedIn(f"The credentials of Azure are not usable: {exc}", "Correct the variable.") from None


def _request_token(credential: TokenCredential, scope: str) -> str:
    from azure.core.exceptions import ClientAuthenticationError

    try:
        return credential.get_token(scope).token
    except ClientAuthenticationError as exc:
        raise NotSignedIn(f"Entra ID gives no token: {_shorten(exc.message)}.", f"Set {WAYS}; {KEY}.") from None
    except (OSError, ValueError) as exc:
        raise NotSignedIn(f"Entra ID gives no token: {_shorten(str(exc))}.", "Check the variables AZURE_*.") from None


def _shorten(text: str) -> str:
    """Return the line of a failure of Entra ID that has its code, else the first line, without its end."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = next((line for line in lines if "AADSTS" in line), lines[0] if lines else "no reason is given")
    return found.split(" Trace ID:")[0].rstrip(".")[:300]
