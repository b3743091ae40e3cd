"""Models of Google's Vertex AI, with an access token (`gcloud auth print-access-token`).

https://cloud.google.com/vertex-ai/generative-ai/docs/start/openai
"""

from hermes_agent.contracts.model_provider import ProviderProfile

PROFILE = ProviderProfile(
    name="vertex",
    aliases=("vertex-ai", "google-vertex"),
    display_name="Vertex AI",
    description="Models of Google's Vertex AI, with an access token",
    base_url="https://aiplatform.googleapis.com/v1/projects/${GOOGLE_CLOUD_PROJECT}/locations/global/endpoints/openapi",
    auth_type="vertex",
    env_vars=("VERTEX_ACCESS_TOKEN", "VERTEX_BASE_URL"),
    signup_url="https://console.cloud.google.com/vertex-ai",
    supports_vision=True,
    schemas="gemini",
)
