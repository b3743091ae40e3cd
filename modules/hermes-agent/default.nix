# services.hermes-agent: the agent as a hardened systemd service whose plugins, Python packages and
# settings are checked while the system is built.
{
  _class = "nixos";
  imports = [
    ./options.nix
    ./settings.nix
    ./secrets.nix
    ./plugins.nix
    ./state.nix
    ./service.nix
    ./hardening.nix
    ./assertions.nix
    ./upstream.nix
  ];
}
