# Python packages that nixpkgs does not have, from the wheels of the package index.
#
# packages.json is the data, which ../plugins/update writes. `packagesFor ps` is all of them for one Python package
# set; `packageFor` is one, also of ../plugins. A package that the set has by itself is taken from there.
{
  lib,
  autoPatchelfHook,
  fetchPypi,
  stdenv,
}:
let
  inherit (stdenv.hostPlatform) system;

  # { file, hash } of this system.
  wheelOf =
    name: entry:
    entry.wheels.any or entry.wheels.${system} or (throw ''
      hermes-agent: the package `${name}` has no wheel for ${system}.
      hint: there are some for ${lib.concatStringsSep ", " (lib.attrNames entry.wheels)}. Do without it there.'');

  sourceOf =
    name: entry:
    let
      wheel = wheelOf name entry;
      # name-version-python-abi-platform
      part = lib.elemAt (lib.splitString "-" (lib.removeSuffix ".whl" wheel.file));
    in
    fetchPypi {
      pname = part 0;
      version = part 1;
      format = "wheel";
      dist = part 2;
      python = part 2;
      abi = part 3;
      platform = part 4;
      inherit (wheel) hash;
    };
in
rec {
  metaOf = entry: {
    inherit (entry) description;
    license =
      if entry.license == "unfree" then lib.licenses.unfree else lib.getLicenseFromSpdxId entry.license;
    platforms = if entry.wheels ? any then lib.platforms.linux else lib.attrNames entry.wheels;
    sourceProvenance = [
      (if entry.wheels ? any then lib.sourceTypes.fromSource else lib.sourceTypes.binaryNativeCode)
    ];
  };

  packageFor =
    ps: others: name: entry:
    let
      dependency =
        wanted:
        ps.${wanted} or others.${wanted} or (throw ''
          hermes-agent: the package `${name}` needs the Python package `${wanted}`, which the package set does not have.
          hint: bring it with an overlay of the Python packages, or do without `${name}`.'');
      withExtras =
        wanted: extras:
        let
          package = dependency wanted;
        in
        [ package ] ++ lib.concatMap (extra: package.optional-dependencies.${extra} or [ ]) extras;
      dependenciesOf = wanted: lib.concatLists (lib.mapAttrsToList withExtras wanted);
      isBinary = !(entry.wheels ? any);
    in
    ps.buildPythonPackage {
      pname = name;
      inherit (entry) version;
      format = "wheel";
      src = sourceOf name entry;
      nativeBuildInputs = lib.optional isBinary autoPatchelfHook;
      buildInputs = lib.optional isBinary stdenv.cc.cc.lib;
      dependencies = dependenciesOf entry.dependencies;
      optional-dependencies = lib.mapAttrs (_: dependenciesOf) (entry.extras or { });
      pythonRelaxDeps = entry.relaxed;
      pythonRemoveDeps = entry.removed;
      meta = metaOf entry;
    };

  packagesFor =
    ps: lib.fix (self: lib.mapAttrs (packageFor ps self) (lib.importJSON ./packages.json));
}
