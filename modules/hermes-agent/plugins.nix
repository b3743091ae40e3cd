# Plugins, and the check that loads all of them while the system is built.
{
  config,
  derived,
  instance,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config;
  format = pkgs.formats.json { };

  # What plugins of `buildHermesPlugin` say of their settings, by name.
  schemas = lib.listToAttrs (
    map (plugin: lib.nameValuePair plugin.pluginName plugin.configSchema) (
      lib.filter (plugin: lib.isAttrs plugin && plugin.configSchema or { } != { }) cfg.extraPlugins
    )
  );
  # What is set of it.
  given = lib.filterAttrs (_: settings: settings != { }) (
    lib.mapAttrs (_: lib.filterAttrs (_: value: value != null)) cfg.plugins.settings
  );
in
{
  options = {
    extraPlugins = mkOption {
      type = types.listOf (types.either types.package types.path);
      default = [ ];
      example = lib.literalExpression ''
        [ (pkgs.fetchFromGitHub { owner = "you"; repo = "hermes-my-plugin"; rev = "v1.0.0"; hash = "sha256-…"; }) ]
      '';
      description = "Directory plugins: source trees with `plugin.yaml` and `__init__.py` at the root. Published plugins: `with pkgs.hermesPlugins; [ … ]`.";
    };

    extraPythonPackages = mkOption {
      type = types.coercedTo (types.listOf types.package) (packages: _: packages) (
        types.functionTo (types.listOf types.package)
      );
      default = _: [ ];
      defaultText = lib.literalExpression "ps: [ ]";
      example = lib.literalExpression "ps: [ ps.redis ]";
      description = ''
        Python packages: plugins with an entry point, and what plugins import. The function is given the
        agent's own package set, so that nothing comes in twice. A list works as well; the agent is then
        built with the interpreter that all of the list belongs to.
      '';
    };

    extraDependencyGroups = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [
        "messaging"
        "voice"
      ];
      description = "Packages by purpose, with upstream's names for them; `nix/groups.nix` has the list.";
    };

    plugins.allowToolOverride = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [ "web_search" ];
      description = ''
        Tools that a plugin may take over from the agent or from another plugin, when it asks for that
        (`override=True`). Two that want any other name refuse to build.
      '';
    };

    plugins.autoEnable = mkOption {
      type = types.bool;
      default = true;
      description = "Whether a declared plugin is an enabled one, unless `settings.plugins.disabled` names it.";
    };

    plugins.checkImports = mkOption {
      type = types.bool;
      default = true;
      description = ''
        Whether the build imports every plugin. Without it a broken plugin, and two plugins with one tool,
        are found at run time; for a plugin that needs hardware to be imported.
      '';
    };

    plugins.settings = mkOption {
      type = import ./plugin-settings.nix { inherit lib format; } schemas;
      default = { };
      example = {
        weather.city = "Bern";
      };
      description = ''
        Settings of plugins by the plugin's name. They stand in `settings.plugins.entries.<name>.settings`. The build
        checks them against the plugin's `config_schema`: a wrong type, an option that it does not declare and a
        required one that is missing are errors. Those of a plugin with a `configSchema` (`buildHermesPlugin`) are
        options with types, which evaluation checks. A secret is no setting: {option}`services.hermes-agent.credentials`.
      '';
    };

    plugins.tolerated = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [ "calculator" ];
      description = ''
        Plugins whose problems are warnings: a hook or a kind that does not exist, a manifest of a later version, a
        Python package or version that it asks for, the schema of a tool.
      '';
    };
  };

  config.settings = lib.mkIf (given != { }) {
    plugins.entries = lib.mapAttrs (_: settings: { inherit settings; }) given;
  };

  config.finalPackage =
    (cfg.package.withPlugins {
      python = cfg.extraPythonPackages;
      directories = cfg.extraPlugins;
      groups = lib.unique (
        cfg.extraDependencyGroups ++ lib.optional (cfg.settings.mcp_servers != { }) "mcp"
      );
    }).override
      {
        inherit (cfg.plugins) checkImports;
        runtime = {
          path = import ./path.nix { inherit pkgs; } ++ cfg.extraPackages;
          inherit (cfg) environment;
          settings = derived.declaredSettings.plugins or { };
          variables = lib.attrNames cfg.environment ++ lib.attrNames cfg.credentials;
          hasEnvironmentFiles = cfg.environmentFiles != [ ];
          inherit (derived) service;
          strict = cfg.strictChecks;
          inherit (instance) option;
        };
      };
}
