from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="local",
    display_name="the embedded model",
    description="The embedded model, in a child process of this machine",
    aliases=("embedded",),
    needs_key=False,
)
