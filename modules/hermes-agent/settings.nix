# What is declared here is a file in the store that the agent lays over `config.local.yaml`, which stays
# with users and the agent. A declared key cannot be changed at run time; a key that is no longer declared
# is gone.
{
  config,
  instance,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config;
  format = pkgs.formats.json { };

  # Every key of the configuration, and null, which leaves it to the agent. Names are checked while building, by
  # `hermes config check`, which knows the keys of plugins as well.
  schema = import ./schema.nix {
    inherit lib format;
    special = {
      "terminal.cwd" = {
        default = cfg.workingDirectory;
        defaultText = lib.literalExpression "config.services.hermes-agent.workingDirectory";
      };
      "terminal.sandbox" = {
        default = if (cfg.tools.sandbox or null) != null then "systemd" else null;
        defaultText = lib.literalMD "`\"systemd\"` with `tools.sandbox`";
      };
      "terminal.exec_socket" = {
        default =
          if instance.plain || (cfg.tools.sandbox or null) == null then null else instance.execSocket;
        defaultText = lib.literalMD "null, which leaves it to the agent; of another instance its own socket";
      };
      "plugins.host.sockets" = {
        default =
          if instance.plain || (cfg.plugins.units or [ ]) == [ ] then null else instance.pluginSockets;
        defaultText = lib.literalMD "null, which leaves it to the agent; of another instance its own folder";
      };
      "server.enabled" = {
        default = if instance.plain || cfg.settings.server.port != null then null else false;
        defaultText = lib.literalMD "null, which leaves it to the agent; of another instance, whether it has a `port`";
        more = " Of several instances each listens on a port of its own, and serves HTTP only where it is given one.";
      };
      "terminal.network".example = "hosts";
      "terminal.sandbox_paths" = {
        example = [ "/srv/manuals" ];
        more = " The unit of `tools.sandbox` shows the absolute ones as well.";
      };
      "terminal.writable_paths".example = [ "~/reports" ];
      "terminal.unconfined_commands".example = [ "systemctl --user restart notes" ];
      "terminal.env_passthrough".example = [ "LANG" ];
      "network.hosts".example = [
        "group:python"
        "*.example.org"
        "10.0.0.0/8"
      ];
      "network.deny".example = [ "ads.example.org" ];
      "network.tools".example = "ask";
      "plugins.allow_tool_override" = {
        default = if cfg.plugins.allowToolOverride == [ ] then null else cfg.plugins.allowToolOverride;
        defaultText = lib.literalExpression "config.services.hermes-agent.plugins.allowToolOverride";
      };
      "plugins.auto_enable" = {
        default = cfg.plugins.autoEnable;
        defaultText = lib.literalExpression "config.services.hermes-agent.plugins.autoEnable";
      };
    };
  };
in
{
  options = {
    settings = mkOption {
      type = schema.type;
      default = { };
      example = {
        model.default = "anthropic/claude-opus-4.6";
        agent.max_turns = 60;
        approvals.mode = "manual";
      };
      description = "The configuration, as in `config.yaml`: an option for each key. null leaves it to the agent.";
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
  };
}
