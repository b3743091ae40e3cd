"""Registration of transports, handlers, references, blueprints, locales and portable packages.

The methods of the context document arguments and errors. Source: plugin contract of 0.23 §6.2, §9.1, §9.3, §9.4, §12.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.contracts.context_reference import ContextReferenceProvider
from hermes_agent.contracts.tool import MCP_SERVER, SKILL
from hermes_agent.core.registry import Conflict
from hermes_agent.plugins.extension_stores import PlatformHandler
from hermes_agent.plugins.handles import PluginRegistration
from hermes_agent.plugins.locales import SURFACES, LocaleLayer, language_id, locale_files, read_texts
from hermes_agent.plugins.plugin_data import FOLDER, state_namespace
from hermes_agent.plugins.registration import Registration, add_once
from hermes_agent.policy.approval_transport import TransportRequest, make_transport

logger = logging.getLogger(__name__)

RESERVED_PREFIXES = frozenset({"diff", "staged", "file", "folder", "git", "url"})
"""Prefixes of context references that belong to the agent."""
_PREFIX = re.compile(r"[a-z][a-z0-9_-]{0,31}")


def register_approval_transport(
    by: Registration, name: str, present: Callable[[TransportRequest], Any]
) -> PluginRegistration:
    """Register an approval transport.

    Raises:
        ValueError: the name is unusable or taken.
        TypeError: `present` is not callable.
    """
    store = by.services.extensions.approval_transports
    transport = make_transport(name, present, by.key, str(by.services.home), store.names())
    store.add(transport.name, transport, owner=by.key)
    return by.enter(
        "approval_transport",
        transport.name,
        lambda: by.services.extensions.approval_transports.withdraw(transport.name, transport),
    )


def register_platform_handler(by: Registration, platform: str, factory: Callable[[Any], Any]) -> PluginRegistration:
    """Register a function that is given the native object of a platform.

    Raises:
        ValueError: the platform is empty, or `factory` is not callable.
    """
    name = platform.strip().lower() if isinstance(platform, str) else ""
    if not name:
        raise ValueError(f"register_platform_handler: platform {platform!r} is not usable: expected a name")
    if not callable(factory):
        raise ValueError(f"register_platform_handler({name!r}): {factory!r} is not callable")
    handler = PlatformHandler(factory, by.key)
    by.services.extensions.platform_handlers.add(name, handler)
    return by.enter("platform_handler", name, lambda: by.services.extensions.platform_handlers.remove(name, handler))


def register_context_reference(by: Registration, provider: ContextReferenceProvider) -> PluginRegistration | None:
    """Register a provider of `@prefix:value`; log and return None if it cannot be used."""
    prefix = str(getattr(provider, "prefix", "") or "").strip().lower()
    store = by.services.extensions.context_references
    if not callable(getattr(provider, "expand", None)):
        why = f"{type(provider).__name__} has no `expand`"
    elif _PREFIX.fullmatch(prefix) is None:
        why = f"prefix {prefix!r} is not usable: expected [a-z][a-z0-9_-], at most 32"
    elif prefix in RESERVED_PREFIXES:
        why = f"prefix '{prefix}' belongs to the agent"
    elif (owner := store.owner(prefix)) is not None:
        why = f"prefix '{prefix}' belongs to plugin `{owner}`"
    else:
        store.add(prefix, provider, owner=by.key)
        return by.enter(
            "context_reference",
            prefix,
            lambda: by.services.extensions.context_references.withdraw(prefix, provider),
        )
    logger.warning("Plugin '%s': context reference is not registered: %s", by.name, why, extra={"plugin": by.key})
    by.note(f"a context reference was not registered: {why}")
    return None


def register_blueprint(by: Registration, key: str, details: Mapping[str, Any]) -> PluginRegistration | None:
    """Register a blueprint of a scheduled job; log and return None if it is malformed or its key is taken."""
    from hermes_agent.plugins.blueprints import UnusableBlueprint, make_blueprint  # few plugins have one

    store = by.services.extensions.blueprints
    try:
        blueprint = make_blueprint(by.name, key, **details)
        if store.get(blueprint.key) is not None:
            raise UnusableBlueprint(f"`{blueprint.key}` is registered already")
    except UnusableBlueprint as exc:
        logger.warning("Plugin '%s': automation blueprint %r: %s", by.name, key, exc, extra={"plugin": by.key})
        by.note(f"automation blueprint {key!r} was not registered: {exc}")
        return None
    store.add(blueprint.key, blueprint, owner=by.key)
    return by.enter(
        "automation_blueprint",
        blueprint.key,
        lambda: by.services.extensions.blueprints.withdraw(blueprint.key, blueprint),
    )


def register_locale(
    by: Registration,
    lang: str,
    source: str | os.PathLike[str] | Mapping[str, Any],
    endonym: str | None,
    rtl: bool,
    surface: str,
) -> PluginRegistration:
    """Add texts of a language.

    Raises:
        ValueError: the language, the surface or the texts are unusable.
        FileNotFoundError: there is no such file.
    """
    if surface not in SURFACES:
        raise ValueError(f"surface {surface!r} is not usable: expected one of {', '.join(SURFACES)}")
    name = f"{language_id(lang)}/{surface}"
    layer = LocaleLayer(by.key, read_texts(source), endonym or "", rtl)
    by.services.extensions.locales.add(name, layer)
    return by.enter("locale", name, lambda: by.services.extensions.locales.remove(name, layer))


def register_locale_dir(
    by: Registration, path: str | os.PathLike[str], metadata: Mapping[str, Mapping[str, Any]] | None
) -> list[PluginRegistration]:
    """Add each locale file of a folder; a file that cannot be read is skipped with a warning."""
    handles = []
    for lang, surface, file in locale_files(Path(path)):
        about = (metadata or {}).get(lang) or {}
        try:
            endonym, rtl = about.get("endonym"), bool(about.get("rtl"))
            handles.append(register_locale(by, lang, file, endonym if isinstance(endonym, str) else None, rtl, surface))
        except (ValueError, OSError) as exc:
            logger.warning("Plugin '%s': %s", by.name, exc, extra={"plugin": by.key})
            by.note(f"a locale was not registered: {exc}")
    return handles


def register_declared_locales(by: Registration) -> None:
    """Add the locale files that a manifest declares (`provides_locales`), before `register` runs."""
    manifest = by.manifest
    if not manifest.provides_locales or manifest.source == "entrypoint":
        return
    folder = Path(manifest.path) / "locales"
    wanted = {str(lang) for lang in manifest.provides_locales}
    found = locale_files(folder)
    for lang, surface, file in found:
        if lang in wanted:
            about = manifest.locale_metadata.get(lang) or {}
            try:
                register_locale(by, lang, file, about.get("endonym"), bool(about.get("rtl")), surface)
            except (ValueError, OSError) as exc:
                logger.warning("Plugin '%s': %s", by.name, exc, extra={"plugin": by.key})
    for lang in sorted(wanted - {lang for lang, _, _ in found}):
        logger.warning(
            "Plugin '%s' declares the locale %s, and there is no %s",
            *(by.name, lang, folder / f"{lang}.yaml"),
            extra={"plugin": by.key},
        )


def register_package(by: Registration) -> None:
    """Register the skills and the MCP servers of a portable package; what cannot be used is noted."""
    from hermes_agent.plugins.portable import InvalidPackage, read_content, read_package, server_options

    manifest, services = by.manifest, by.services
    data = services.home / FOLDER / state_namespace(by.key)
    try:
        options = server_options(read_package(f"{manifest.path}/plugin.json").extensions)
    except InvalidPackage:  # it was removed since it was found
        options = {}
    content = read_content(Path(manifest.path), data)
    for problem in content.problems:
        logger.warning("Plugin '%s': %s", by.name, problem, extra={"plugin": by.key})
        by.note(problem)
    for skill in content.skills:
        try:
            entry = services.plugin_skills.register(
                skill.name, skill.file, plugin=manifest.skill_namespace, owner=by.key, description=skill.description
            )
        except Conflict as exc:
            by.refused(SKILL.label, exc.name, exc.owner)
            continue
        add_once(by.record.skills_registered, entry.qualified)
    configured = services.config.settings.mcp_servers
    if content.servers:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    for server in content.servers:
        owner = services.extensions.mcp_servers.owner(server.name)
        if server.name in configured:
            by.note(f"its MCP server `{server.name}` is not used: mcp_servers of the config has one of that name")
            logger.warning("Plugin '%s': MCP server `%s` is that of the config", by.name, server.name)
            continue
        if owner is not None:
            by.refused(MCP_SERVER.label, server.name, owner)
            continue
        services.extensions.mcp_servers.add(server.name, {**server.block, "plugin": by.key}, owner=by.key)
        by.registered(MCP_SERVER, server.name)
    if wanted := sorted(name for name, given in options.items() if given.get("trust") == "full"):
        by.note(f"it asks for full trust in {', '.join(wanted)}: results of MCP servers are always untrusted text")
