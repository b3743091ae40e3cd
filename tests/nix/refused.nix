# Hosts that must not build; refused/<name>.expected has the whole text that says why.
{
  lib,
  pkgs,
  fixtures,
}:
let
  inherit (fixtures) plugin pythonPackage pythonPackageOf;
in
{
  # ── plugins ───────────────────────────────────────────────────────────
  broken-plugin = {
    extraPlugins = [ (plugin "raises") ];
  };
  import-error = {
    extraPlugins = [ (plugin "imports-missing") ];
  };
  same-name = {
    extraPlugins = [
      (plugin "twin-a")
      (plugin "twin-b")
    ];
  };
  same-name-as-package = {
    extraPlugins = [ (plugin "hello") ];
    extraPythonPackages = [ (pythonPackage "hello-package" "1.0.0" [ ]) ];
  };
  same-tool = {
    extraPlugins = [
      (plugin "hello")
      (plugin "hello-again")
    ];
  };
  no-manifest = {
    extraPlugins = [ (plugin "no-manifest") ];
  };
  manifest-one-level-down = {
    extraPlugins = [ (plugin "nested") ];
  };
  invalid-manifest = {
    extraPlugins = [ (plugin "bad-manifest") ];
  };
  nameless-manifest = {
    extraPlugins = [ (plugin "nameless") ];
  };
  unmet-requires-env = {
    extraPlugins = [ (plugin "needs-key") ];
  };
  enabled-but-nowhere = {
    settings.plugins.enabled = [
      "hello"
      "telescope"
    ];
    extraPlugins = [ (plugin "hello") ];
  };
  enabled-but-misspelled = {
    settings.plugins.enabled = [ "helo" ];
    extraPlugins = [ (plugin "hello") ];
  };

  # ── Python packages ───────────────────────────────────────────────────
  missing-dependency = {
    extraPythonPackages = [ (pythonPackage "weather" "1.0.0" [ ]) ];
  };
  two-versions = {
    extraPythonPackages = [
      fixtures.weather
      fixtures.leaf2
    ];
  };
  shadows-core = {
    extraPythonPackages = [ (pythonPackage "shadow" "1.0.0" [ ]) ];
  };
  mixed-interpreters = {
    extraPythonPackages = [
      fixtures.leaf1
      (pythonPackageOf pkgs.python310Packages "weather" "1.0.0" [ ])
    ];
  };
  dependency-of-other-interpreter = {
    extraPythonPackages = [
      (pythonPackage "weather" "1.0.0" [ (pythonPackageOf pkgs.python310Packages "leaf" "1.0.0" [ ]) ])
    ];
  };
  not-a-python-package = {
    extraPythonPackages = [ pkgs.jq ];
  };

  # ── settings ──────────────────────────────────────────────────────────
  # Of the other agents of a host, too, and the text says of which.
  instance-with-a-misspelled-setting = {
    instances.alice.settings.modle = "x";
  };
  instance-with-a-plugin-that-is-nowhere = {
    instances.alice.settings.plugins.enabled = [ "helo" ];
  };
  instance-with-an-argument = {
    instances.alice.extraArgs = [ "--loudly" ];
  };
  misspelled-setting = {
    settings.modle.default = "test/model";
  };
  misspelled-setting-below = {
    settings.approvals.mod = "manual";
  };
  unknown-provider = {
    settings.model.provider = "opnrouter";
  };
  unknown-platform-of-plugins = {
    settings.platforms.hallo.enabled = true;
    extraPlugins = [ (plugin "hello") ];
  };
  unknown-group-of-hosts = {
    settings.network.hosts = [ "group:pyton" ];
  };
  unknown-toolset = {
    settings.agent.disabled_toolsets = [ "treminal" ];
  };
  path-that-is-relative = {
    settings.terminal.writable_paths = [ "reports" ];
  };
  broken-configfile = {
    configFile = ./broken.yaml;
  };
  unknown-argument = {
    extraArgs = [ "--no-such-flag" ];
  };
  unknown-group = {
    extraDependencyGroups = [ "mesaging" ];
  };
  group-without-package = {
    extraDependencyGroups = [ "modal" ];
  };

  tool-that-may-be-replaced = {
    plugins.allowToolOverride = [ "treminal" ];
  };

  # ── the package, and what is not here ─────────────────────────────────
  tool-taken-over = {
    extraPlugins = [ (plugin "takes-over") ];
  };
}
