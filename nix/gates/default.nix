# What has to hold before the agent is built: each gate is a derivation that fails with the culprit,
# the paths and the remedy, in the ten lines at most that `nix build` shows of a log.
{
  lib,
  runCommand,
  writeText,
  python,
  library,
}:
let
  # Where the options of a host stand; those of another instance are below it.
  plain = "services.hermes-agent";
  json = name: value: writeText "hermes-agent-${name}.json" (builtins.toJSON value);
in
rec {
  # The agent without plugins, for gates that speak its language.
  agent = python.withPackages (_: [ library ]);

  # pythonClosure :: [ package ] -> JSON of every distribution
  # No package is there twice, none hides another, none is missing, each is of this interpreter.
  pythonClosure =
    modules:
    runCommand "hermes-agent-python-closure" { } ''
      ${python.interpreter} -I ${../../hermes/hermes_agent/plugins/closure.py} ${
        json "python-closure" {
          site = python.sitePackages;
          roots = map toString modules;
        }
      } $out
    '';

  # pluginDir :: [ package or path ] -> { plugins/<name>, manifests.json }
  # Each is a plugin, and has a name of its own.
  pluginDir =
    plugins:
    runCommand "hermes-agent-plugin-dir" { } ''
      ${agent.interpreter} -I ${./plugin_dir.py} ${json "plugin-dir" (map (p: "${p}") plugins)} $out
    '';

  # configCheck :: file -> nothing, once it is a configuration that the agent takes
  configCheck = configCheckOf plain;
  configCheckOf =
    option: file:
    runCommand "hermes-agent-config-check" { } ''
      ${configCheckCommand option file}
      touch $out
    '';

  # The same as a line of a builder's script.
  configCheckCommand = option: file: "${agent.interpreter} -I ${./config_check.py} ${file} ${option}";

  # startCheck :: { package, file, pluginCheck, … } -> the warnings, once the daemon would start with these settings
  # `hermes doctor --declared` starts it; what it is given beside that, pluginCheck is given as well.
  startCheck =
    {
      package,
      file,
      pluginCheck,
      path ? [ ],
      environment ? { },
      # What the unit gives: the fields of `--service`, as docs/nix.md has them.
      service ? { },
      # Where the options of the host stand, for the messages.
      option ? plain,
      # Whether a warning refuses the build.
      strict ? false,
      ...
    }:
    runCommand "hermes-agent-start-check" { } ''
      : ${configCheckOf option file} ${pluginCheck}  # their words come first
      ${agent.interpreter} -I ${./start_check.py} ${
        json "start-check" {
          hermes = "${package}/bin/hermes";
          file = "${file}";
          report = "${pluginCheck}";
          path = lib.makeBinPath path;
          service = {
            label = "declared";
          }
          // service;
          inherit environment option strict;
        }
      } $out
    '';

  # argumentsCheck :: option -> [ argument ] -> nothing, once `hermes gateway run` knows all of them
  argumentsCheck =
    option: arguments:
    runCommand "hermes-agent-arguments-check" { } ''
      ${agent.interpreter} -I ${./arguments_check.py} ${option} ${agent}/bin/hermes ${lib.escapeShellArgs arguments}
      touch $out
    '';

  # Every module of the agent imports. The library is to blame if not, so a check of the flake suffices.
  packageImports = runCommand "hermes-agent-package-imports" { } ''
    ${agent.interpreter} -I ${./package_imports.py} > $out
  '';

  # pluginCheck :: { package, pluginDir, … } -> JSON of every plugin and what it registers
  # The agent's own loader imports and registers all of them, in an empty home.
  pluginCheck =
    {
      package,
      pluginDir,
      checkImports ? true,
      # Packages on the daemon's PATH, and its variables.
      path ? [ ],
      environment ? { },
      # `settings.plugins`: what is disabled, what may override, which names have to be there.
      settings ? { },
      # Names with a value at run time; null: nobody knows yet.
      variables ? null,
      # Whether files that only the machine has may hold more of them.
      hasEnvironmentFiles ? false,
      option ? plain,
      # Of startCheck.
      ...
    }:
    let
      config = json "plugin-settings" { plugins = settings; };
    in
    runCommand "hermes-agent-plugin-check" { } ''
      ${configCheckCommand option config}
      ${agent.interpreter} -I ${./plugin_check.py} ${
        json "plugin-check" {
          hermes = "${package}/bin/hermes";
          manifests = "${pluginDir}/manifests.json";
          config = "${config}";
          path = lib.makeBinPath path;
          inherit
            checkImports
            environment
            variables
            hasEnvironmentFiles
            option
            ;
        }
      } $out
    '';
}
