# The host with the packages of published plugins: `sites` are folders of distributions, of which each is taken in its
# newest version; what nix/plugins packages itself is left out. `files` has the wheels.
{
  lib,
  host,
  file,
}:
let
  given = lib.importJSON file;
  own =
    lib.concatMap (data: lib.attrNames (lib.importJSON data)) [
      ../../nix/plugins/plugins.json
      ../../nix/python/packages.json
    ]
    ++ [ "hermes-agent" ];
  # Of nixpkgs' names those that are another distribution's, with the same modules.
  renamed = lib.filterAttrs (
    name: attribute: name != attribute && !(host.distributions ? ${attribute})
  ) (lib.importJSON ../../nix/plugins/nixpkgs.json);
  newest =
    all: name: each:
    if all ? ${name} && builtins.compareVersions all.${name}.version each.version >= 0 then
      all.${name}
    else
      each;
  add =
    all: each:
    all
    // lib.mapAttrs (name: d: newest all name (d // { inherit (each) site; })) (
      builtins.removeAttrs each.distributions own
    );
  distributions = lib.foldl' add host.distributions given.sites;
in
host
// {
  inherit (given) files;
  inherit distributions;
  aliases = lib.mapAttrs' (name: attribute: lib.nameValuePair attribute name) (
    lib.filterAttrs (name: _: distributions ? ${name}) renamed
  );
}
