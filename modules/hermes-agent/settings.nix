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
  model = types.submodule {
    freeformType = format.type;
    options = {
      provider = key types.str "Who answers: `openrouter`, `openai`, …; empty for any compatible server.";
      default = key types.str "The model's name, as the provider calls it.";
      base_url = key types.str "Where the provider's API is.";
    };
  };
  settings = types.submodule {
    freeformType = format.type;
    options = {
      model = mkOption {
        type = types.coercedTo types.str (name: { default = name; }) model;
        default = { };
        description = "Who answers; a text is the name of the model.";
      };
      agent.max_turns = key types.ints.positive "Model calls in one turn before the agent stops.";
      terminal.cwd = mkOption {
        type = types.nullOr types.str;
        default = cfg.workingDirectory;
        defaultText = lib.literalExpression "config.services.hermes-agent.workingDirectory";
        description = "Where tools start.";
      };
      terminal.sandbox = mkOption {
        type = types.nullOr (types.either types.bool types.str);
        default = if (cfg.tools.sandbox or null) != null then "systemd" else null;
        defaultText = lib.literalMD "`\"systemd\"` with `tools.sandbox`";
        description = "The box that commands run in.";
      };
      plugins.enabled = key (types.listOf types.str) "Plugins to load; with `plugins.autoEnable` all declared ones are.";
      plugins.disabled = key (types.listOf types.str) "Plugins not to load; this one wins.";
      plugins.allow_tool_override = mkOption {
        type = types.nullOr (types.listOf types.str);
        default = if cfg.plugins.allowToolOverride == [ ] then null else cfg.plugins.allowToolOverride;
        defaultText = lib.literalExpression "config.services.hermes-agent.plugins.allowToolOverride";
        description = "Tools that a plugin may take over.";
      };
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

    configFile = mkOption {
      type = types.nullOr types.path;
      default = null;
      example = lib.literalExpression "./hermes.yaml";
      description = ''
        The whole configuration as a file, in place of `settings` and all that goes into them (`mcpServers`,
        `plugins.autoEnable`, `plugins.allowToolOverride`). A file beside the configuration goes into the world-readable
        store and is checked by the build; an absolute path as a text stays where it is and is checked at the start.
      '';
    };

    declaredSettings = mkOption {
      type = types.attrsOf types.anything;
      internal = true;
      readOnly = true;
      description = "`settings` without what was left to the agent.";
    };

    declaredConfig = mkOption {
      type = types.either types.package types.path;
      internal = true;
      readOnly = true;
      description = "`settings` as the file that the agent is given.";
    };
  };

  config.services.hermes-agent = {
    declaredSettings = if cfg.configFile != null then { } else withoutEmpty (withoutNull cfg.settings);
    declaredConfig =
      if cfg.configFile == null then format.generate "hermes-agent-settings.json" cfg.declaredSettings
      else if lib.isString cfg.configFile then cfg.configFile
      else "${cfg.configFile}";
    # A file that only the machine has is checked when the daemon starts.
    checks = lib.optional (lib.hasPrefix "${builtins.storeDir}/" "${cfg.declaredConfig}") (cfg.finalPackage.settingsCheck cfg.declaredConfig);
  };
}
