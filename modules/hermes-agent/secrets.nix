# Secrets are handed over by systemd, in a directory that only the daemon can read: never in the store,
# never in the environment of the unit.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config;

  # The type refuses a path in the store; its words are the advice.
  # Before nixpkgs 25.11 there is no `externalPath`.
  outside =
    types.externalPath
      or (types.addCheck types.path (value: !(lib.hasPrefix builtins.storeDir (toString value))));
  secretFile = outside // {
    description = "absolute path outside of the world-readable Nix store, such as /run/secrets/hermes-agent of sops-nix or agenix";
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
      description = "Files with one secret each, by the name of the variable that it would otherwise be in.";
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

    loadCredential = mkOption {
      type = types.listOf types.str;
      internal = true;
      readOnly = true;
      description = "`LoadCredential=` of the unit.";
    };

    seedAuth = mkOption {
      type = types.listOf types.str;
      internal = true;
      readOnly = true;
      description = "The command that puts `authFile` into the home.";
    };
  };

  config = {
    loadCredential =
      lib.mapAttrsToList (name: path: "${name}:${path}") cfg.credentials
      ++ lib.imap0 (i: path: "env-${toString i}:${path}") cfg.environmentFiles
      ++ lib.optional (cfg.authFile != null) "auth.json:${cfg.authFile}";
    seedAuth = lib.optional (cfg.authFile != null) (
      toString (
        pkgs.writeShellScript "hermes-agent-seed-auth" ''
          set -euo pipefail
          ${lib.optionalString (!cfg.authFileForceOverwrite) ''[ ! -e "$HERMES_HOME/auth.json" ] || exit 0''}
          install -m 0600 -- "$CREDENTIALS_DIRECTORY/auth.json" "$HERMES_HOME/auth.json"
        ''
      )
    );
  };
}
