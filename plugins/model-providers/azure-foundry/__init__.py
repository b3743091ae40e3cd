"""Models of Microsoft's Azure: with a key of the resource, or a token of Entra ID.

The address is the resource's: `https://NAME.openai.azure.com/openai/v1`, or for Claude
`https://NAME.services.ai.azure.com/anthropic` with `model.api_mode: anthropic_messages`.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from hermes_agent.contracts.model_provider import ProviderProfile, UnsignedRequest


class AzureFoundry(ProviderProfile):
    def sign(self, request: UnsignedRequest) -> Mapping[str, str]:
        from .entra import tokens  # only without a key

        host = urlsplit(request.url).hostname or ""
        return {"authorization": f"Bearer {tokens().token(host, again=request.again)}"}

    def account(self) -> str:
        from .entra import describe_account

        return describe_account()


PROFILE = AzureFoundry(
    name="azure-foundry",
    aliases=("azure", "azure-openai"),
    display_name="Azure Foundry",
    description="Models of Microsoft's Azure, at the address of your resource",
    env_vars=("AZURE_FOUNDRY_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_FOUNDRY_BASE_URL"),
    sign_in="Azure takes the identity of the machine, of a workload or of `az login` without a login here (extra"
    " `azure-identity`), or a key of the resource; for a login here, register a program in your tenant at"
    " https://entra.microsoft.com and set client_id, device_url, token_url and scope under"
    " `providers.azure-foundry.oauth`.",
    signup_url="https://ai.azure.com",
    supports_vision=True,
    # https://learn.microsoft.com/en-us/azure/ai-foundry/openai/how-to/reasoning
    max_tokens_field="max_completion_tokens",
)
