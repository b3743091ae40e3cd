# The agent with its plugins: one Python environment, one directory of plugins, and the checks
# that stand before them. `callPackage ./package.nix { }`; what has a default is for `.override`.
{
  lib,
  autoPatchelfHook,
  fetchPypi,
  makeBinaryWrapper,
  python3Packages,
  runCommand,
  stdenv,
  testers ? null,
  writeText,

  # Entry-point plugins and what plugins import: a list, or `ps: [ … ]`, which is given the agent's
  # own package set, so that nothing comes in twice.
  extraPythonPackages ? [ ],
  # Packages by purpose, as ./groups.nix names them.
  extraDependencyGroups ? [ ],
  # Directory plugins: packages or paths with plugin.yaml and __init__.py at the root.
  extraPlugins ? [ ],
  # Import every plugin while building. false reads manifests only, for a plugin that needs hardware.
  checkImports ? true,
  # What the daemon is given, { path, environment, settings, variables, hasEnvironmentFiles, service, option, strict },
  # as ./gates/default.nix says; the NixOS module fills it in.
  runtime ? { },
}@arguments:
let
  asFunction = extras: if lib.isFunction extras then extras else _: extras;

  chosen = import ./interpreter.nix { inherit lib; } {
    packages = python3Packages;
    extras =
      ps:
      asFunction extraPythonPackages ps
      ++ lib.concatMap (plugin: asFunction (plugin.pythonDependencies or [ ]) ps) (
        lib.filter lib.isAttrs extraPlugins
      );
  };
  inherit (chosen.packages) python;

  # nixpkgs' `toPythonApplication` of it is the agent without plugins; this one has an environment of its own.
  library = chosen.packages.callPackage ./library.nix { inherit otherPackages; };
  inherit
    (import ./python {
      inherit
        lib
        autoPatchelfHook
        fetchPypi
        stdenv
        ;
    })
    packagesFor
    ;
  otherPackages = packagesFor chosen.packages;

  groups = library.optional-dependencies;
  groupOf =
    name:
    groups.${name} or (throw ''
      hermes-agent: extraDependencyGroups: there is no group `${name}`.
      hint: there are ${lib.concatStringsSep ", " (lib.attrNames groups)}. Other packages: extraPythonPackages = ps: [ … ].'');
  modules = [ library ] ++ lib.unique (chosen.extras ++ lib.concatMap groupOf extraDependencyGroups);

  gates = import ./gates {
    inherit
      lib
      runCommand
      writeText
      python
      library
      ;
  };
  closureCheck = gates.pythonClosure modules;
  # A published plugin may be a Python package alone (./plugins): there is no directory of it.
  pluginDir = gates.pluginDir (lib.filter (plugin: !(plugin.hasEntryPoint or false)) extraPlugins);
  # Without the imports the registrations of plugins are unknown, and nothing is started.
  settingsCheck =
    file:
    if checkImports then
      gates.startCheck (
        {
          package = unchecked;
          inherit file pluginCheck;
        }
        // runtime
      )
    else
      gates.configCheck file;
  pluginCheck = gates.pluginCheck (
    {
      package = unchecked;
      inherit pluginDir checkImports;
    }
    // runtime
  );

  environment = python.buildEnv.override {
    extraLibs = modules;
    # The environment waits for the check, whose words are better than those of a collision here.
    postBuild = ": ${closureCheck}";
  };

  unchecked =
    runCommand "hermes-agent-unchecked-${library.version}"
      { nativeBuildInputs = [ makeBinaryWrapper ]; }
      ''
        makeWrapper ${environment}/bin/hermes $out/bin/hermes \
          --set HERMES_BUNDLED_PLUGINS :${pluginDir}/plugins
      '';

  # What a start would otherwise look for: it is taken while everything is as it was here, which in the store is for ever.
  pluginIndex = runCommand "hermes-agent-plugin-index" { } ''
    : ${pluginCheck}  # its words come first
    PYTHONDONTWRITEBYTECODE=1 HOME=$TMPDIR HERMES_HOME=$TMPDIR ${unchecked}/bin/hermes plugins index --output $out > /dev/null
  '';

  # withPlugins { python = ps: [ ps.foo ]; directories = [ ./bar ]; groups = [ "voice" ]; }: the same agent with more.
  withPlugins =
    {
      python ? [ ],
      directories ? [ ],
      groups ? [ ],
    }:
    lib.makeOverridable (import ./package.nix) (
      arguments
      // {
        extraPythonPackages = ps: asFunction extraPythonPackages ps ++ asFunction python ps;
        extraPlugins = extraPlugins ++ directories;
        extraDependencyGroups = lib.unique (extraDependencyGroups ++ groups);
      }
    );
  final =
    runCommand "hermes-agent-${library.version}"
      {
        nativeBuildInputs = [ makeBinaryWrapper ];
        pname = "hermes-agent";
        inherit (library) version meta;
        passthru = {
          inherit
            python
            library
            environment
            unchecked
            withPlugins
            ;
          inherit
            gates
            closureCheck
            pluginDir
            pluginCheck
            pluginIndex
            settingsCheck
            ;
          inherit (library) optional-dependencies;
          application = python.pkgs.toPythonApplication library;
          tests = {
            inherit closureCheck pluginDir pluginCheck;
            inherit (gates) packageImports;
            inherit (library.tests) pytest;
          }
          // lib.optionalAttrs (testers != null) (
            import ./tests.nix {
              inherit testers;
              package = final;
            }
          );
          # A modular service (NixOS 25.11): system.services.<name>.imports = [ package.services.default ];
          services.default = {
            imports = [ (lib.modules.importApply ./service.nix { inherit writeText; }) ];
            hermes-agent.package = lib.mkDefault final;
          };
        };
      }
      ''
        mkdir -p $out/nix-support
        makeWrapper ${unchecked}/bin/hermes $out/bin/hermes \
          --set-default HERMES_PLUGIN_INDEX $out/share/hermes-agent/plugins.json
        mkdir -p $out/share/hermes-agent
        cp ${pluginIndex} $out/share/hermes-agent/plugins.json
        cp ${pluginCheck} $out/nix-support/plugins.json
      '';
in
final
