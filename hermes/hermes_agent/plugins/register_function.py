"""What is called to register a plugin: from its module, or from the object that its entry point names.

Source: plugin contract §1.7, §1.14, §8.1, §13 row 35.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from types import ModuleType
from typing import Any, cast

from hermes_agent.contracts.memory import MemoryProvider, check_memory_provider
from hermes_agent.contracts.model_provider import ProviderProfile
from hermes_agent.plugins.manifest import PluginManifest

__all__ = ["Register", "find_register"]

Register = Callable[[Any], Any]


def find_register(loaded: Any, manifest: PluginManifest) -> Register | None:
    """Return what is to be called with ctx, None when there is nothing of the kind.

    That is `register` of a module, object or class, or the object itself. A plugin of kind `exclusive` may also be a
    memory provider, its class, or what returns one; a module without `register` has its first class made. A plugin
    of kind `model-provider` may be a profile or its class; its module may have registered already, and `register`
    need not take an argument.
    """
    if manifest.kind == "exclusive":
        return _find_memory(loaded) or _find_general(loaded) or _first_memory(loaded)
    if manifest.kind == "model-provider":
        return _find_model_provider(loaded)
    return _find_general(loaded)


def _find_general(loaded: Any) -> Register | None:
    register = getattr(loaded, "register", None) if _has_register(loaded) else None
    if callable(register):
        if inspect.isclass(loaded) and inspect.isfunction(inspect.getattr_static(loaded, "register")):
            return cast(Register, cast(Any, loaded)().register)  # a class that is meant to be instantiated
        return cast(Register, register)
    if callable(loaded) and not isinstance(loaded, ModuleType):
        return cast(Register, loaded)
    return None


def _has_register(loaded: Any) -> bool:
    if inspect.isclass(loaded):  # an abstract class has the `register` of its metaclass, which is something else
        return any("register" in vars(cls) for cls in loaded.__mro__)
    return hasattr(loaded, "register")


def _find_memory(loaded: Any) -> Register | None:
    """Return what registers a provider, its class, or what a function without arguments returns."""
    if isinstance(loaded, ModuleType) or _has_register(loaded) or check_memory_provider(loaded):
        if inspect.isfunction(loaded) and not _takes_ctx(loaded):
            return partial(_register_made_memory, loaded)
        return None
    return partial(_register_made_memory, loaded if inspect.isclass(loaded) else lambda: loaded)


def _first_memory(loaded: Any) -> Register | None:
    for value in cast("Iterable[Any]", vars(loaded).values()):
        if inspect.isclass(value) and issubclass(value, MemoryProvider) and not inspect.isabstract(value):
            return partial(_register_made_memory, value)
    return None


def _register_made_memory(make: Callable[[], Any], ctx: Any) -> None:
    ctx.register_memory_provider(make())


def _find_model_provider(loaded: Any) -> Register:
    if isinstance(loaded, ProviderProfile):
        return lambda ctx: ctx.register_model_provider(loaded)
    if inspect.isclass(loaded) and issubclass(loaded, ProviderProfile):
        return lambda ctx: ctx.register_model_provider(cast(Any, loaded)())
    register = _find_general(loaded)
    if register is None:
        return lambda ctx: None  # its module's body has registered
    return partial(_register_profiles, register)


def _register_profiles(register: Callable[..., Any], ctx: Any) -> None:
    made = register(ctx) if _takes_ctx(register) else register()
    for profile in made if isinstance(made, list | tuple) else (made,):
        if isinstance(profile, ProviderProfile):
            ctx.register_model_provider(profile)


def _takes_ctx(register: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(register).parameters.values()
    except (TypeError, ValueError):  # a built-in without a signature
        return True
    return any(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL) for p in parameters)
