"""Video generation. Source: plugin contract §8.6, §11.2."""

from hermes_agent.contracts.video_gen import VideoGenProvider as VideoGenProvider
from hermes_agent.contracts.video_gen import error_response as error_response
from hermes_agent.contracts.video_gen import save_b64_video as save_b64_video
from hermes_agent.contracts.video_gen import save_bytes_video as save_bytes_video
from hermes_agent.contracts.video_gen import save_url_video as save_url_video
from hermes_agent.contracts.video_gen import success_response as success_response
