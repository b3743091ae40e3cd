"""The home's `.env` in this process. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.variables import load_hermes_dotenv as load_hermes_dotenv
