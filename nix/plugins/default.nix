# Published plugins, as the package index has them: `extraPlugins = with pkgs.hermesPlugins; [ hermes-ssh hermes-tweet ];`
#
# plugins.json is the data, which `nix/plugins/update NAME…` writes; no file of them is patched. A plugin with an entry
# point is its Python package; any other is a directory plugin. Each brings what it imports, from the agent's own
# package set where that has it. `<name>.tests.agent` is the agent with it.
{
  lib,
  callPackage,
  python3Packages,
  runCommand,
  writeShellScriptBin,
}:
let
  inherit (callPackage ../python { }) metaOf packageFor packagesFor;

  agent = callPackage ../package.nix { };

  # What the published installer puts into a home.
  installed = environment: entry: ''
    export HOME=$TMPDIR HERMES_HOME=$TMPDIR/.hermes
    ${environment}/bin/${lib.escapeShellArgs entry.installer} < /dev/null
    cp -r $HERMES_HOME/plugins/*/ $out
  '';

  # The agent with it, and with stand-ins for programs that it runs while it loads and that nixpkgs does not have.
  loaded =
    entry: plugin:
    let
      withPlugin = agent.withPlugins { directories = [ plugin ]; };
      standIns = map (program: writeShellScriptBin program "echo '{}'") entry.programs;
    in
    if entry ? programs then withPlugin.override { runtime.path = standIns; } else withPlugin;

  # The published manifest cannot be read; its name and version can.
  manifest = entry: ''
    printf 'name: %s\nversion: %s\nkind: exclusive\n' ${entry.named} ${entry.version} > $out/plugin.yaml
  '';

  pluginFor =
    name: entry:
    let
      moduleFor = ps: packageFor ps (packagesFor ps) name entry;
      module = moduleFor python3Packages;
      environment = python3Packages.python.withPackages (_: [ module ]);
      passthru = {
        isHermesPlugin = true;
        pythonDependencies = ps: [ (moduleFor ps) ];
        tests.agent = loaded entry plugin;
      };
      directory =
        runCommand "hermes-plugin-${name}-${entry.version}"
          {
            pname = name;
            inherit (entry) version;
            inherit passthru;
            meta = metaOf entry;
          }
          ''
            ${
              if entry ? installer then
                installed environment entry
              else
                "cp -r ${module}/${python3Packages.python.sitePackages}/${entry.folder} $out"
            }
            chmod -R u+w $out
            find $out -name __pycache__ -prune -exec rm -rf {} +
            ${lib.optionalString (entry ? named) (manifest entry)}
          '';
      plugin =
        if entry.kind == "entry-point" then
          module
          // passthru
          // {
            hasEntryPoint = true;
            passthru = module.passthru or { } // passthru;
          }
        else
          directory;
    in
    plugin;
in
lib.mapAttrs pluginFor (lib.importJSON ./plugins.json)
