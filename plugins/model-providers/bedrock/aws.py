"""Credentials of AWS, looked up in the order of its own tools: environment, profile, machine.

Keys that stand in the environment or in a profile are read here; those that have to be asked for (IAM Identity Center,
roles, processes, containers, the machine's role) are botocore's (extra `bedrock`).
"""

from __future__ import annotations

import configparser
import functools
import os
from pathlib import Path
from typing import Any

from hermes_agent.contracts.model_provider import NotSignedIn

from .sigv4 import Keys

REMOTE_KEY_SETTINGS = (
    "sso_session",
    "sso_start_url",
    "role_arn",
    "credential_process",
    "web_identity_token_file",
    "login_session",
)
"""Settings of a profile that has no keys itself; they must be fetched."""
INSTALL = "install the extra `bedrock` (`hermes doctor` says how; on NixOS extraDependencyGroups)"


def keys() -> Keys:
    """Return the keys to sign with. Raise NotSignedIn, with the places searched, if there are none."""
    access, secret = os.environ.get("AWS_ACCESS_KEY_ID", ""), os.environ.get("AWS_SECRET_ACCESS_KEY", "")
    if access and secret:
        return Keys(access, secret, os.environ.get("AWS_SESSION_TOKEN", ""), "AWS_ACCESS_KEY_ID of the environment")
    if access or secret:
        there, missing = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY") if access else ("SECRET_ACCESS_KEY", "ACCESS_KEY_ID")
        raise NotSignedIn(f"AWS_{there} is set and AWS_{missing} is not.", "Set both, or neither.")
    name = profile_name()
    profile = _profile(name)
    if profile.get("aws_access_key_id") and profile.get("aws_secret_access_key"):
        token = profile.get("aws_session_token", "")
        return Keys(profile["aws_access_key_id"], profile["aws_secret_access_key"], token, f"the AWS profile {name!r}")
    if not profile and os.environ.get("AWS_PROFILE"):
        raise NotSignedIn(f"AWS_PROFILE is {name!r}, and there is no such profile.", f"Looked in {_searched_places()}.")
    return _request_keys(name, profile)


def region(url_host: str) -> str:
    """Return the region of a signature: of the host, else of the environment or the profile."""
    words = url_host.split(".")
    if len(words) >= 4 and words[0].startswith("bedrock") and "amazonaws" in words:
        return words[1]
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return named or _profile(profile_name()).get("region") or "us-east-1"


def profile_name() -> str:
    return os.environ.get("AWS_PROFILE") or "default"


def _request_keys(name: str, profile: dict[str, str]) -> Keys:
    kind = next((setting for setting in REMOTE_KEY_SETTINGS if profile.get(setting)), "")
    try:
        found = _session(name if profile else "").get_credentials()
    except ImportError:
        if kind:
            why = f"The AWS profile {name!r} says {kind}, which takes botocore, and that is not installed."
            raise NotSignedIn(why, f"To do: {INSTALL}.") from None
        places = _searched_places()
        why = f"There are no AWS credentials: neither AWS_BEARER_TOKEN_BEDROCK nor AWS_ACCESS_KEY_ID, nor in {places}."
        hint = f"Set one of them, or run `aws configure`. For the role of the machine or a container: {INSTALL}."
        raise NotSignedIn(why, hint) from None
    except Exception as exc:  # botocore's errors have no common base that is public
        raise NotSignedIn(f"AWS gives no credentials: {exc}", "Try `aws sts get-caller-identity`.") from exc
    if found is None:
        hint = "Set AWS_BEARER_TOKEN_BEDROCK or AWS_ACCESS_KEY_ID, or run `aws configure`."
        raise NotSignedIn(f"There are no AWS credentials, nor in {_searched_places()}, nor of the machine.", hint)
    try:
        frozen = found.get_frozen_credentials()
    except Exception as exc:
        raise NotSignedIn(f"AWS gives no credentials: {exc}", "`aws sso login`, or what your profile needs.") from exc
    return Keys(frozen.access_key, frozen.secret_key, frozen.token or "", f"{found.method} (AWS profile {name!r})")


@functools.cache
def _session(name: str) -> Any:
    """Return botocore's session, which renews by itself."""
    import botocore.session  # a tenth of a second

    return botocore.session.Session(profile=name or None)


def _files() -> tuple[Path, Path]:
    credentials = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    config = os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config"
    return Path(credentials).expanduser(), Path(config).expanduser()


def _searched_places() -> str:
    credentials, config = _files()
    return f"{credentials} and {config}"


def _profile(name: str) -> dict[str, str]:
    """Return the settings of a profile; the credentials file wins. Raise NotSignedIn for a broken file."""
    credentials, config = _files()
    sections = ((config, name if name == "default" else f"profile {name}"), (credentials, name))
    found: dict[str, str] = {}
    for file, section in sections:
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read(file, encoding="utf-8")
        except (configparser.Error, OSError, UnicodeError) as exc:
            raise NotSignedIn(f"{file} cannot be read: {type(exc).__name__}.", "Correct the file.") from None
        if parser.has_section(section):
            found |= dict(parser.items(section))
    return found
