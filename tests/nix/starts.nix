# The checks of many hosts in one derivation: $out/<name>.text and $out/<name>.status of each, as the gate of the host
# gives them (`nix/gates/start_check.py`). Hosts with one package share a process, in which each start is a child.
{ lib, pkgs }:
# hosts: { name = host'; … }
hosts:
let
  specOf =
    name: host:
    let
      cfg = host.config.services.hermes-agent;
    in
    {
      inherit name;
      python = "${host.package.environment}/bin/python3";
      plugins = "${host.package.pluginDir}/plugins";
      spec = {
        file = "${host.derived.declaredConfig}";
        # What the check of the plugins says is with the hosts that are built whole.
        report = "${pkgs.writeText "plugins.json" "{}"}";
        path = lib.makeBinPath (
          import ../../modules/hermes-agent/path.nix { inherit pkgs; } ++ cfg.extraPackages
        );
        service = {
          label = "declared";
        }
        // host.derived.service;
        inherit (cfg) environment;
        option = "services.hermes-agent";
        strict = cfg.strictChecks;
      };
    };
  groups = lib.groupBy (each: builtins.unsafeDiscardStringContext (each.python + each.plugins)) (
    lib.attrValues (lib.mapAttrs specOf hosts)
  );
  run =
    each:
    let
      first = lib.head each;
    in
    ''
      HERMES_BUNDLED_PLUGINS=:${first.plugins} PYTHONDONTWRITEBYTECODE=1 HERMES_HOME=$TMPDIR/home HOME=$TMPDIR \
        ${first.python} -I ${./starts.py} ${../../nix/gates/start_check.py} \
        ${
          pkgs.writeText "hosts.json" (builtins.toJSON (map (one: { inherit (one) name spec; }) each))
        } $out
    '';
in
pkgs.runCommand "starts" { } ''
  mkdir $out
  ${lib.concatMapStringsSep "\n" run (lib.attrValues groups)}
''
