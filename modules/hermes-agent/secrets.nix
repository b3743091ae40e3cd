# Secrets are handed over by systemd, in a directory that only the daemon can read: never in the store,
# never in the environment of the unit.
{ config, lib, ... }:
let
  inherit (lib) mkOption types;
  cfg = config.services.hermes-agent;

  # The type refuses a path in the store; its words are the advice.
  secretFile = types.externalPath // {
    description = "absolute path outside of the world-readable Nix store, such as /run/secrets/hermes-agent of sops-nix or agenix";
  };
in
{
  options.services.hermes-agent = {
    credentials = mkOption {
      type = types.attrsOf secretFile;
      default = { };
      example = { OPENROUTER_API_KEY = "/run/secrets/openrouter"; };
      description = "Files with one secret each, by the name of the variable that it would otherwise be in.";
    };

    environmentFiles = mkOption {
      type = types.listOf secretFile;
      default = [ ];
      example = [ "/run/secrets/hermes-agent.env" ];
      description = "Files with lines `NAME=value`. The agent reads them; they are not exported to what it starts.";
    };
  };

  config.systemd.services.hermes-agent = lib.mkIf cfg.enable {
    serviceConfig.LoadCredential = lib.mapAttrsToList (name: path: "${name}:${path}") cfg.credentials
      ++ lib.imap0 (i: path: "env-${toString i}:${path}") cfg.environmentFiles;
  };
}
