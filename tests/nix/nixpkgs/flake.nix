# Takes nixpkgs' place offline: nix build --override-input nixpkgs path:<a copy of this directory>
# The copy has a host.json beside this file, written by host.py: the Python packages of the machine.
{
  outputs =
    _:
    let
      lib = import ./minilib;
      systems = [
        "x86_64-linux"
        "aarch64-linux"
      ];
      legacyPackages = lib.genAttrs systems (
        system:
        import ./minipkgs {
          inherit lib system;
          host = lib.importJSON ./host.json;
        }
      );
    in
    {
      inherit legacyPackages;
      lib = lib // {
        nixosSystem = import ./nixos { inherit lib legacyPackages; };
      };
    };
}
