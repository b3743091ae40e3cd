# Sets of files as `{ files = { <absolute path> = true; }; }`, listed eagerly: our source
# tree is small. Like the real library it drops directories that come out empty.
{ lib }:
let
  # builtins.readFileType is newer than Nix 2.8.
  typeOf = path: (builtins.readDir (dirOf path)).${baseNameOf path};
  list = path:
    if typeOf path == "directory"
    then lib.concatLists (lib.mapAttrsToList (name: _: list (path + "/${name}")) (builtins.readDir path))
    else [ path ];
  filesOf = x: x.files or (lib.genAttrs (map toString (list x)) (_: true));
  parents = file: if file == "/" then [ ] else [ (dirOf file) ] ++ parents (dirOf file);
  extension = name: let parts = lib.splitString "." name; in if lib.length parts > 1 then lib.last parts else null;
in
{
  maybeMissing = path: if builtins.pathExists path then { files = filesOf path; } else { files = { }; };
  unions = sets: { files = lib.foldl' (acc: s: acc // filesOf s) { } sets; };
  difference = a: b: { files = builtins.removeAttrs (filesOf a) (lib.attrNames (filesOf b)); };
  fileFilter = predicate: path: {
    files = lib.filterAttrs
      (file: _: predicate rec { name = baseNameOf file; type = "regular"; hasExt = ext: extension name == ext; })
      (filesOf path);
  };
  toSource = { root, fileset }:
    let
      files = filesOf fileset;
      directories = lib.genAttrs (lib.concatMap parents (lib.attrNames files)) (_: true);
    in
    {
      outPath = builtins.path {
        name = "source";
        path = root;
        filter = path: type: (if type == "directory" then directories else files) ? ${path};
      };
    };
}
