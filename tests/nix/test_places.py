"""The lists of what commands are shown: bubblewrap's, the packaged unit's and the rendered unit's are one list."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hermes_agent.workspace.sandbox.file_rules import SYSTEM

PACKAGED = Path(__file__).parents[2] / "packaging" / "systemd" / "hermes-exec@.service"

NOT_IN_UNITS = {
    "/sys": "MountAPIVFS= brings it",
    "/var/log": "bubblewrap shows users what they may read anyway; a service has no need of the machine's logs",
    "/home/linuxbrew/.linuxbrew": "a service sees no home",
}
"""Places of `view.SYSTEM` that no unit shows, with the reason."""
NOT_PACKAGED = {
    "/run/current-system": "there is none but on NixOS, which has a unit of its own",
    "/run/booted-system": "there is none but on NixOS, which has a unit of its own",
    "/run/opengl-driver": "there is none but on NixOS, which has a unit of its own",
}
NOT_RENDERED = {
    "/sbin": "NixOS has none",
    "/libx32": "NixOS has none: nix-ld brings loaders to /lib, /lib32 and /lib64 alone",
    "/opt": "nothing on NixOS is installed there; what an operator puts there is no program of the system",
    "/snap": "NixOS has none",
    "/gnu/store": "Guix is no part of NixOS",
    "/var/lib/dpkg": "of another package manager",
    "/var/lib/rpm": "of another package manager",
    "/var/lib/pacman": "of another package manager",
    "/var/lib/texmf": "TeX comes from the store",
}


def without(reasons: dict[str, str]) -> set[str]:
    assert reasons.keys() <= set(SYSTEM), "a difference that is none"
    return set(SYSTEM) - reasons.keys()


def test_the_packaged_unit_shows_what_bubblewrap_shows() -> None:
    lines = re.findall(r"^BindReadOnlyPaths=(.*)$", PACKAGED.read_text(), re.MULTILINE)
    shown = [path.removeprefix("-") for line in lines for path in line.split()]
    assert sorted(shown) == sorted(without({**NOT_IN_UNITS, **NOT_PACKAGED}))


@pytest.mark.nix
@pytest.mark.parametrize(
    ("profile", "more"),
    [
        ("strict", set[str]()),
        # Where the names of hosts are looked up: this profile has the network.
        (
            "workspace",
            {
                "/run/nscd:/var/run/nscd",
                "/run/systemd/resolve",
                "/run/systemd/resolve/resolv.conf:/run/systemd/resolve/stub-resolv.conf",
            },
        ),
    ],
)
def test_the_rendered_unit_shows_what_bubblewrap_shows(profile: str, more: set[str], nix) -> None:
    unit = nix.evaluate(f"sandboxed.{profile}.config.systemd.services")["hermes-exec@"]["serviceConfig"]
    shown = [path.removeprefix("-") for path in unit["BindReadOnlyPaths"]]
    assert sorted(shown) == sorted(without({**NOT_IN_UNITS, **NOT_RENDERED}) | more)


@pytest.mark.nix
def test_both_units_make_the_same_of_it(nix) -> None:
    """What hides, mounts and withholds is the same, beside the list and the limits."""
    keys = (
        *("RootDirectory", "MountAPIVFS", "TemporaryFileSystem", "InaccessiblePaths", "ProtectSystem", "ProtectHome"),
        *("PrivateTmp", "PrivateNetwork", "PrivateDevices", "PrivateUsers", "PrivateIPC", "ProtectProc", "ProcSubset"),
        *("RestrictAddressFamilies", "RestrictNamespaces", "SystemCallFilter", "CapabilityBoundingSet", "DynamicUser"),
        *("NoNewPrivileges", "DevicePolicy", "KeyringMode", "RestrictSUIDSGID", "UMask", "Group", "KillMode"),
    )
    rendered = nix.evaluate("sandboxed.strict.config.systemd.services")["hermes-exec@"]["serviceConfig"]
    packaged: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", PACKAGED.read_text(), re.MULTILINE):
        packaged.setdefault(key, []).append(value)

    def words(value: object) -> list[str]:
        listed = value if isinstance(value, list) else [value]
        as_text = [{True: "yes", False: "no"}.get(each, str(each)) for each in listed]
        return sorted(word for text in as_text for word in text.split())

    assert {key: words(rendered[key]) for key in keys} == {key: words(packaged[key]) for key in keys}


@pytest.mark.nix
def test_of_a_home_the_workspace_alone_is_bound(nix) -> None:
    unit = nix.evaluate("atHome.config.systemd.services")["hermes-exec@"]["serviceConfig"]
    assert unit["BindPaths"] == ["/home/owner/project"] and unit["ProtectHome"] == "tmpfs"
    assert [path for path in unit["BindReadOnlyPaths"] if "/home" in path] == []


@pytest.mark.nix
def test_what_the_settings_show_is_shown_in_the_unit(nix) -> None:
    unit = nix.evaluate("limited.config.systemd.services")["hermes-exec@"]["serviceConfig"]
    assert unit["BindReadOnlyPaths"][-1] == "-/srv/manuals"
    assert unit["BindPaths"] == ["/var/lib/hermes/workspace", "/srv/data"]
