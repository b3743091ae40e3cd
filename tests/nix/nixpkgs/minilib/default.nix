# A small stand-in for nixpkgs' `lib`, written from its documented behaviour.
# It covers what our package, module and tests use and nothing more, so that the
# tests run on a machine that has Nix but no copy of nixpkgs. With NIXPKGS_LIB they
# also run with the real library, and every derivation must come out the same.
let
  base = import ./base.nix;
  properties = import ./properties.nix;
  types = import ./types.nix { inherit lib; };
  options = import ./options.nix { inherit lib; };
  modules = import ./modules.nix { inherit lib; };

  lib =
    base
    // properties
    // options
    // modules
    // {
      inherit types;
      licenses.mit.spdxId = "MIT";
      licenses.unfree.free = false;
      getLicenseFromSpdxId = spdxId: { inherit spdxId; };
      sourceTypes = {
        fromSource.isSource = true;
        binaryNativeCode.isSource = false;
      };
      platforms.linux = [
        "x86_64-linux"
        "aarch64-linux"
      ];
      options = options;
      modules = modules;
      strings = base;
    };
in
lib
