# What has to hold before the agent is built: each gate is a derivation that fails with the culprit,
# the paths and the remedy, in the ten lines at most that `nix build` shows of a log.
{ lib, runCommand, writeText, python, library }:
let
  json = name: value: writeText "hermes-agent-${name}.json" (builtins.toJSON value);
  # Gates that speak the agent's own language; its plugins are not in this environment.
  agent = python.withPackages (_: [ library ]);
in
rec {
  # pythonClosure :: [ package ] -> JSON of every distribution
  # No package is there twice, none hides another, each is of this interpreter.
  pythonClosure = modules:
    runCommand "hermes-agent-python-closure" { } ''
      ${python.interpreter} ${../../hermes/hermes_agent/plugins/closure.py} ${
        json "python-closure" { site = python.sitePackages; roots = map toString modules; }
      } $out
    '';

  # pluginDir :: [ package or path ] -> { plugins/<name>, manifests.json }
  # Each has a manifest with a name of its own.
  pluginDir = plugins:
    runCommand "hermes-agent-plugin-dir" { } ''
      ${agent.interpreter} ${./plugin_dir.py} ${json "plugin-dir" (map (p: "${p}") plugins)} $out
    '';

  # pluginCheck :: { package, pluginDir, … } -> JSON of every plugin and what it registers
  # The agent's own loader imports and registers all of them in an empty home.
  pluginCheck =
    { package
    , pluginDir
    , checkImports ? true
      # Packages on the daemon's PATH.
    , path ? [ ]
      # The daemon's variables.
    , environment ? { }
      # Names with a value at run time; null: nobody knows yet.
    , variables ? null
      # Whether files that only the machine has may hold more of them.
    , hasEnvironmentFiles ? false
    }:
    runCommand "hermes-agent-plugin-check" { } ''
      ${agent.interpreter} ${./plugin_check.py} ${
        json "plugin-check" {
          hermes = "${package}/bin/hermes";
          manifests = "${pluginDir}/manifests.json";
          path = lib.makeBinPath path;
          inherit checkImports environment variables hasEnvironmentFiles;
        }
      } $out
    '';

  # configCheck :: { package, file } -> nothing, once `file` is a configuration that `package` takes
  configCheck = arguments:
    runCommand "hermes-agent-config-check" { } ''
      ${configCheckCommand arguments}
      touch $out
    '';

  # The same as a line of a builder's script.
  configCheckCommand = { package, file }:
    "${agent.interpreter} ${./config_check.py} ${package} ${file}";
}
