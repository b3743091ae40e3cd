# buildHermesPlugin { src; … }: a directory plugin as a package, tried while it is built.
#
#   extraPlugins = [ (pkgs.buildHermesPlugin { src = ./my-plugin; dependencies = ps: [ ps.redis ]; }) ];
#
# The manifest is read, what it wants (`pip_dependencies`) has to be among `dependencies` in a fitting version, the
# agent loads it (a warning is an error), and its own tests run. With `dependencies` the agent's environment gets them.
{
  lib,
  python3Packages,
  runCommand,
  writeText,
}:
let
  library = python3Packages.callPackage ./library.nix { };
in
{
  src,
  # Of the package; the plugin's own name is in its manifest.
  pname ? "hermes-plugin",
  version ? "0",
  # Its own name, and its `config_schema`: with both, `plugins.settings.<name>` has an option for each key of it. They are
  # compared with the manifest.
  pluginName ? lib.removePrefix "hermes-" pname,
  configSchema ? { },
  # ps: [ package ]: what it imports.
  dependencies ? (_: [ ]),
  # ps: [ package ]: what its tests import, beside pytest.
  checkInputs ? (_: [ ]),
  # Programs that it calls while it is loaded and tested.
  nativeCheckInputs ? [ ],
  # Whether to run its tests, where it has a directory `tests`.
  doCheck ? true,
  # Values that its tests may read.
  checkEnvironment ? { },
  meta ? { },
}:
let
  python = python3Packages.python.withPackages (
    ps:
    [
      library
      ps.pytest
    ]
    ++ dependencies ps
    ++ checkInputs ps
  );
  spec = writeText "hermes-plugin.json" (
    builtins.toJSON {
      source = "${src}";
      inherit doCheck;
      declared =
        if configSchema == { } then
          null
        else
          {
            name = pluginName;
            config_schema = configSchema;
          };
      environment = checkEnvironment;
    }
  );
in
runCommand "${pname}-${version}"
  {
    inherit pname version meta;
    nativeBuildInputs = nativeCheckInputs;
    passthru = {
      isHermesPlugin = true;
      pythonDependencies = dependencies;
      inherit configSchema pluginName;
    };
  }
  ''
    ${python.interpreter} -I ${./gates/plugin_build.py} ${spec} $out
  ''
