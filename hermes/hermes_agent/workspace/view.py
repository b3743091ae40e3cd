"""The table of what the sandbox and the file tools show of the file system: what is not listed here is not there.

Data and pure functions. Imports the standard library alone: the search process loads it on its own.
"""

from __future__ import annotations

__all__ = [
    "CACHES",
    "HOMES",
    "SHOWN_OF_HOME",
    "SYSTEM",
    "TEMPORARY",
    "TEMPORARY_CACHE",
    "WITHHELD",
    "is_above",
    "is_inside",
    "is_shown_of_home",
]

SYSTEM = (
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/etc", "/opt", "/snap", "/sys"),
    *("/nix/store", "/nix/var/nix/profiles", "/gnu/store", "/home/linuxbrew/.linuxbrew"),
    *("/run/current-system", "/run/booted-system", "/run/opengl-driver"),
    *("/var/lib/dpkg", "/var/lib/rpm", "/var/lib/pacman", "/var/lib/texmf", "/var/cache/fontconfig", "/var/log"),
)
"""Programs, their settings and logs, as far as the agent's user may read them; for root: as far as others may."""
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
"""The file tools see the machine's; commands in the sandbox have their own, empty ones."""
HOMES = ("/home", "/root", "/Users", "/var/home")

SHOWN_OF_HOME = (
    *(".rustup", ".cargo/bin", ".cargo/env", ".cargo/git", ".cargo/registry"),
    *(".pyenv", ".rye", ".pixi/bin", ".pixi/envs", ".virtualenvs", ".local/share/virtualenvs", ".local/share/uv"),
    *(".local/share/pipx", ".local/share/pypoetry", ".local/bin", ".local/lib"),
    *(".nvm", ".fnm", ".local/share/fnm", ".volta/bin", ".volta/tools", ".bun/bin", ".bun/install", ".deno/bin"),
    *(".npm-global", ".npm/_cacache", ".yarn/bin", ".local/share/pnpm"),
    *(".goenv", ".gvm", ".rbenv", ".rvm", ".gem/ruby", ".asdf", ".local/share/mise"),
    *(".sdkman/bin", ".sdkman/candidates", ".jenv", ".jbang/bin", ".m2/repository", ".m2/wrapper"),
    *(".gradle/caches", ".gradle/wrapper", ".ivy2/cache"),
    *(".ghcup", ".cabal/bin", ".cabal/packages", ".stack/programs", ".opam", ".elan", ".juliaup"),
    *(".julia/artifacts", ".julia/compiled", ".julia/packages", ".dotnet", ".nuget/packages", ".mix", ".luarocks"),
    *(".composer/vendor", ".config/composer/vendor", ".foundry/bin", ".krew/bin", ".tfenv", ".pub-cache/bin"),
    *(".nix-profile", ".nix-defexpr", ".local/state/nix/profiles", ".guix-profile"),
    *(".config/git/attributes", ".config/git/ignore", ".gitignore"),
)
"""Hidden entries of the user's home that are shown: toolchains, without the files that hold their credentials."""
CACHES = (
    *(".cache/huggingface/hub", ".cache/torch", ".cache/ms-playwright", ".cache/puppeteer", ".cache/electron"),
    ".cache/fontconfig",
)
"""Caches that are of use without being written."""
TEMPORARY_CACHE = ".cache"
"""Commands have their own, empty one, with `CACHES` in it."""
WITHHELD = ("snap", "Library")
"""Entries of a home that are not hidden by their name, and hold what programs keep: profiles of browsers."""


def is_inside(path: str, directory: str) -> bool:
    """Say whether a resolved path is `directory` or lies in it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def is_above(path: str, place: str) -> bool:
    """Say whether a resolved path is a directory on the way to `place`."""
    return path != place and is_inside(place, path)


def is_shown_of_home(place: str) -> bool:
    """Say whether a path below the user's home, relative to it, is shown; empty for the home itself."""
    top = place.partition("/")[0]
    if not top:
        return True
    if not top.startswith("."):
        return top not in WITHHELD
    return any(is_inside(place, shown) for shown in (*SHOWN_OF_HOME, *CACHES))
