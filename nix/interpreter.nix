# The interpreter follows the list: { packages, extras } -> { packages, extras }.
#
# `extras` is a function of a Python package set. When all it returns belongs to one other interpreter
# (the plugin guide writes `pkgs.python312Packages.…`), the agent is built with that one, and the
# function is asked again with its set. Several interpreters are refused.
{ lib }:
{ packages, extras }:
let
  pathOf = drv: builtins.unsafeDiscardStringContext drv.outPath;
  interpreterOf =
    package:
    if lib.isAttrs (package.pythonModule or null) then
      package.pythonModule
    else
      throw ''
        hermes-agent: extraPythonPackages holds `${lib.getName package}`, which is not a Python package:
            ${pathOf package}
        hint: programs go to services.hermes-agent.extraPackages, directory plugins to services.hermes-agent.extraPlugins.'';

  given = extras packages;
  # In the order of the list, each once.
  interpreters = map (
    path: lib.head (lib.filter (python: pathOf python == path) (map interpreterOf given))
  ) (lib.unique (map (package: pathOf (interpreterOf package)) given));
  membersOf = python: lib.filter (p: pathOf (interpreterOf p) == pathOf python) given;
  describe =
    python:
    "    Python ${python.pythonVersion}, ${pathOf python}: ${
          lib.concatMapStringsSep ", " lib.getName (membersOf python)
        }";
in
if lib.length interpreters > 1 then
  throw ''
    hermes-agent: extraPythonPackages mixes the packages of ${toString (lib.length interpreters)} Python interpreters:
    ${lib.concatMapStringsSep "\n" describe interpreters}
    hint: take all of them from one set: extraPythonPackages = ps: [ ps.${lib.getName (lib.head given)} … ].''
else if interpreters == [ ] || pathOf (lib.head interpreters) == pathOf packages.python then
  {
    inherit packages;
    extras = given;
  }
else
  let
    others = (lib.head interpreters).pkgs;
  in
  {
    packages = others;
    extras = extras others;
  }
