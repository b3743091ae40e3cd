# What is declared here is a file in the store that the agent lays over `config.local.yaml`, which stays
# with users and the agent. A declared key cannot be changed at run time; a key that is no longer declared
# is gone.
{ config, lib, pkgs, ... }:
let
  inherit (lib) mkOption types;
  cfg = config.services.hermes-agent;
  format = pkgs.formats.json { };

  # The keys that this module reads, or that nearly everybody sets; the rest is checked while building,
  # by `hermes config check`. null leaves a key to the agent.
  key = type: description: mkOption { type = types.nullOr type; default = null; inherit description; };
  settings = types.submodule {
    freeformType = format.type;
    options = {
      model.provider = key types.str "Who answers: `openrouter`, `openai`, …; empty for any compatible server.";
      model.default = key types.str "The model's name, as the provider calls it.";
      model.base_url = key types.str "Where the provider's API is.";
      agent.max_turns = key types.ints.positive "Model calls in one turn before the agent stops.";
      terminal.cwd = mkOption {
        type = types.nullOr types.str;
        default = cfg.workingDirectory;
        defaultText = lib.literalExpression "config.services.hermes-agent.workingDirectory";
        description = "Where tools start.";
      };
      plugins.enabled = key (types.listOf types.str) "Plugins to load; with `plugins.autoEnable` all declared ones are.";
      plugins.disabled = key (types.listOf types.str) "Plugins not to load; this one wins.";
      plugins.auto_enable = mkOption {
        type = types.nullOr types.bool;
        default = cfg.plugins.autoEnable;
        defaultText = lib.literalExpression "config.services.hermes-agent.plugins.autoEnable";
        description = "Whether all that is declared or installed is loaded.";
      };
      server.host = key types.str "Address that the HTTP server listens on.";
      server.port = key types.port "Port that the HTTP server listens on.";
      server.drain_timeout_s = key types.ints.positive "Seconds that running turns may finish in when the service stops.";
    };
  };

  withoutNull = lib.filterAttrsRecursive (_: value: value != null);
  withoutEmpty = lib.filterAttrs (_: value: value != { });
in
{
  options.services.hermes-agent = {
    settings = mkOption {
      type = settings;
      default = { };
      example = {
        model.default = "anthropic/claude-opus-4.6";
        agent.max_turns = 60;
        approvals.mode = "manual";
      };
      description = "The configuration, as in `config.yaml`. null removes a key.";
    };

    declaredSettings = mkOption {
      type = types.attrsOf types.anything;
      internal = true;
      readOnly = true;
      description = "`settings` without what was left to the agent.";
    };

    declaredConfig = mkOption {
      type = types.package;
      internal = true;
      readOnly = true;
      description = "`settings` as the file that the agent is given.";
    };
  };

  config = {
    services.hermes-agent = {
      declaredSettings = withoutEmpty (withoutNull cfg.settings);
      declaredConfig = format.generate "hermes-agent-settings.json" cfg.declaredSettings;
    };

    # Built with the system, kept out of its closure.
    system.checks = lib.mkIf cfg.enable [ (cfg.package.gates.configCheck cfg.declaredConfig) ];
  };
}
