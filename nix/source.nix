# The files of the repository below some top-level names, without what runs leave behind, so that a change of the others
# builds nothing again.
{ lib }:
{
  name,
  tops,
  without ? "",
}:
lib.cleanSourceWith {
  inherit name;
  src = ../.;
  filter =
    path: _:
    let
      top = lib.head (lib.splitString "/" (lib.removePrefix "${toString ../.}/" path));
    in
    lib.elem top tops && builtins.match ".*(__pycache__|\\.pyc${without})" path == null;
}
