# A small host. `nixos-rebuild build` refuses it when a plugin does not load, when two of them want one
# name, when a Python package is missing or there twice, and when a setting is misspelled.
{ pkgs, ... }:
{
  services.hermes-agent = {
    enable = true;

    settings = {
      model.provider = "openrouter";
      model.default = "anthropic/claude-opus-4.6";
      agent.max_turns = 60;
    };

    # A file with nothing but the key, put there by sops-nix, agenix, or by hand.
    credentials.OPENROUTER_API_KEY = "/run/secrets/openrouter-api-key";

    # Directory plugins come from ./flake.nix here; a path beside this file, or fetchFromGitHub, does as well.

    # Packages with an entry point, and what plugins import, from the agent's own set.
    extraPythonPackages = ps: [ ps.pyyaml ];

    # Programs for its terminal.
    extraPackages = [ pkgs.jq ];
  };

  # The rest of the machine.
  boot.loader.grub.enable = false;
  fileSystems."/" = {
    device = "/dev/disk/by-label/nixos";
    fsType = "ext4";
  };
  system.stateVersion = "26.05";
}
