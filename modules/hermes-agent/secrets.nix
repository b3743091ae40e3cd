# Secrets are handed over by systemd, in a directory that only the daemon can read: never in the store,
# never in the environment of the unit.
{ lib, ... }:
let
  inherit (lib) mkOption types;

  # A text, so that no path beside the configuration is copied to the store.
  secretFile = types.pathWith {
    absolute = true;
    inStore = false;
  };
in
{
  options = {
    credentials = mkOption {
      type = types.attrsOf secretFile;
      default = { };
      example = {
        OPENROUTER_API_KEY = "/run/secrets/openrouter";
      };
      description = ''
        Files with one secret each, by the name of the variable that it would otherwise be in, such as
        `/run/secrets/…` of sops-nix or agenix. The daemon gets a copy; nothing of it is in the store.
      '';
    };

    environmentFiles = mkOption {
      type = types.listOf secretFile;
      default = [ ];
      example = [ "/run/secrets/hermes-agent.env" ];
      description = "Files with lines `NAME=value`. The agent reads them; they are not exported to what it starts.";
    };

    authFile = mkOption {
      type = types.nullOr secretFile;
      default = null;
      example = "/run/secrets/hermes-agent/auth.json";
      description = "Tokens to begin with: it becomes `auth.json` of the home where there is none yet; the agent refreshes them there.";
    };

    authFileForceOverwrite = mkOption {
      type = types.bool;
      default = false;
      description = "Whether `authFile` replaces `auth.json` at each start.";
    };
  };
}
