"""Models of Microsoft's Azure.

The address is the resource's: `https://NAME.openai.azure.com/openai/v1`, or for Claude
`https://NAME.services.ai.azure.com/anthropic` with `model.api_mode: anthropic_messages`.
"""

from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="azure-foundry",
    aliases=("azure", "azure-openai"),
    display_name="Azure Foundry",
    description="Models of Microsoft's Azure, at the address of your resource",
    env_vars=("AZURE_FOUNDRY_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_FOUNDRY_BASE_URL"),
    sign_in="Azure signs in programs that are registered in your tenant: register one at https://entra.microsoft.com"
    " and set client_id, device_url, token_url and scope under `providers.azure-foundry.oauth`; or take a key of"
    " the resource.",
    signup_url="https://ai.azure.com",
    supports_vision=True,
    max_tokens_field="max_completion_tokens",
)
