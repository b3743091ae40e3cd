# services.hermes-agent on NixOS: the agent as a hardened systemd service whose plugins, Python packages
# and settings are checked while the system is built.
{
  _class = "nixos";
  imports = [
    ./options.nix
    ./users.nix
    ./settings.nix
    ./mcp.nix
    ./secrets.nix
    ./plugins.nix
    ./checks.nix
    ./documents.nix
    ./state.nix
    ./service.nix
    ./hardening.nix
    ./sandbox.nix
    ./local-model.nix
    ./assertions.nix
    ./upstream.nix
  ];
}
