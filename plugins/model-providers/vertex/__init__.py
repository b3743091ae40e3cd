"""Models of Google's Vertex AI: with the application-default credentials, or an access token.

https://cloud.google.com/vertex-ai/generative-ai/docs/start/openai
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hermes_agent.contracts.model_provider import ProviderProfile, UnsignedRequest

if TYPE_CHECKING:
    from .google import GoogleTokens


@functools.cache
def _tokens() -> GoogleTokens:
    from .google import GoogleTokens  # only who asks Vertex without a token

    return GoogleTokens()


class Vertex(ProviderProfile):
    def sign(self, request: UnsignedRequest) -> Mapping[str, str]:
        tokens = _tokens()
        return {"authorization": f"Bearer {tokens.token(refused=tokens.last if request.again else '')}"}

    def account(self) -> str:
        from .google import credentials

        return credentials().description


PROFILE = Vertex(
    name="vertex",
    aliases=("vertex-ai", "google-vertex"),
    display_name="Vertex AI",
    description="Models of Google's Vertex AI, with the application-default credentials or an access token",
    base_url="https://aiplatform.googleapis.com/v1/projects/${GOOGLE_CLOUD_PROJECT}/locations/global/endpoints/openapi",
    auth_type="vertex",
    env_vars=("VERTEX_ACCESS_TOKEN", "VERTEX_BASE_URL"),
    signup_url="https://console.cloud.google.com/vertex-ai",
    sign_in="Vertex AI takes Google's application-default credentials (`gcloud auth application-default login`, or"
    " GOOGLE_APPLICATION_CREDENTIALS) without a login here, or an access token, which ends within the hour.",
    supports_vision=True,
    schemas="gemini",
    # https://docs.cloud.google.com/vertex-ai/generative-ai/docs/migrate/openai/overview: the service ignores these
    lacks_options=("logit_bias", "parallel_tool_calls", "verbosity"),
)
