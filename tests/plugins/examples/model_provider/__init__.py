"""A provider with one hook; the module's body registers it, as the published guide has it."""

from providers import register_provider
from providers.base import ProviderProfile


class Example(ProviderProfile):
    def build_extra_body(self, *, session_id=None, **context):
        return {"metadata": {"team": "blue", "model": context["model"]}}


register_provider(
    Example(
        name="example",
        aliases=("example-inference",),
        display_name="Example Inference",
        env_vars=("EXAMPLE_API_KEY", "EXAMPLE_BASE_URL"),
        base_url="https://api.example.com/v1",
        fallback_models=("example-large", "example-small"),
    )
)
