# The agent on whole machines, for who has nixpkgs. The project's CI has not, and runs the same script in a container of
# its own (tests/nix/e2e): these are not run there.
{ testers, package }:
{
  vm = import ../tests/nix/e2e/vm.nix { pkgs = { inherit testers; }; };
  container = import ../tests/nix/e2e/vm.nix {
    pkgs = { inherit testers; };
    kind = "containers";
  };
  version = testers.testVersion {
    inherit package;
    command = "HOME=$TMPDIR hermes --version";
  };
}
