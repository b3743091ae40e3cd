# Whether a build refuses what it would otherwise warn of; derived.nix has the checks.
{ lib, ... }:
{
  options.strictChecks = lib.mkOption {
    type = lib.types.bool;
    default = false;
    description = ''
      Whether a warning of the checks refuses the build: a key that no plugin declares, a variable that only a file of
      the machine can give, a problem of a tolerated plugin. Otherwise a switch of the system shows the warnings.
    '';
  };
}
