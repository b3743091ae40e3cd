# script.py in a virtual machine, for those who have nixpkgs: `nix build .#checks.x86_64-linux.vm`.
# kind = "containers": in a container of NixOS' test driver, which needs no kernel of its own.
{
  pkgs,
  kind ? "nodes",
}:
pkgs.testers.runNixOSTest {
  name = "hermes-agent";
  ${kind}.machine = import ./host.nix {
    module = ../../../modules/hermes-agent;
    plugin = ../../../examples/plugins/calculator;
    package = ps: [
      (ps.buildPythonPackage {
        pname = "weather";
        version = "1.0.0";
        pyproject = true;
        src = ../packages/weather;
        build-system = [ ps.setuptools ];
        dependencies = [
          (ps.buildPythonPackage {
            pname = "leaf";
            version = "1.0.0";
            pyproject = true;
            src = ../packages/leaf;
            build-system = [ ps.setuptools ];
          })
        ];
      })
    ];
  };
  testScript = builtins.readFile ./script.py;
}
