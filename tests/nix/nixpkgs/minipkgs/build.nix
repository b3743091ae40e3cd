# Builders: a command, a text, a link farm, a wrapper.
{
  lib,
  host,
  system,
}:
let
  bash = "/bin/bash";
  notForTheBuilder = [
    "passthru"
    "meta"
    "nativeBuildInputs"
    "pname"
    "version"
    "env"
    "strictDeps"
    "__structuredAttrs"
    "preferLocalBuild"
    "allowSubstitutes"
  ];
in
rec {
  mk =
    name: attrs: script:
    let
      result = derivation (
        builtins.removeAttrs attrs notForTheBuilder
        // attrs.env or { }
        // {
          inherit name system script;
          builder = bash;
          PATH = lib.concatStringsSep ":" (
            map (p: "${p}/bin") (attrs.nativeBuildInputs or [ ])
            ++ [
              "/usr/bin"
              "/bin"
            ]
          );
          # What a real stdenv sets, as far as it can change an output.
          SOURCE_DATE_EPOCH = "315532800";
          PYTHONHASHSEED = "0";
          PYTHONDONTWRITEBYTECODE = "1";
          LC_ALL = "C.UTF-8";
          passAsFile = [ "script" ] ++ attrs.passAsFile or [ ];
          args = [
            "-euo"
            "pipefail"
            "-c"
            ''source "$scriptPath"''
          ];
        }
      );
      shown = lib.filterAttrs (n: _: n == "pname" || n == "version") attrs;
    in
    result
    // shown
    // {
      meta = attrs.meta or { };
      passthru = attrs.passthru or { };
    }
    // attrs.passthru or { };

  runCommand = mk;
  runCommandLocal = mk;

  writeTextFile =
    {
      name,
      text,
      executable ? false,
      destination ? "",
    }:
    mk name
      {
        inherit text;
        passAsFile = [ "text" ];
      }
      ''
        target="$out${destination}"
        mkdir -p "$(dirname "$target")"
        cp "$textPath" "$target"
        ${lib.optionalString executable ''chmod +x "$target"''}
      '';
  writeText = name: text: writeTextFile { inherit name text; };
  writeShellScriptBin =
    name: text:
    writeTextFile {
      inherit name;
      executable = true;
      destination = "/bin/${name}";
      text = "#!${bash}\n${text}\n";
    };

  writeShellScript =
    name: text:
    writeTextFile {
      inherit name;
      executable = true;
      text = "#!${bash}\n${text}\n";
    };

  # nixpkgs' buildEnv: links, and no two different files at one place.
  buildEnv =
    {
      name,
      paths,
      ignoreCollisions ? false,
      postBuild ? "",
      passthru ? { },
      meta ? { },
    }:
    mk name
      {
        inherit passthru meta;
        spec = builtins.toJSON { inherit paths ignoreCollisions; };
        passAsFile = [ "spec" ];
      }
      ''
        ${host.python} ${./buildenv.py} "$specPath" "$out"
        ${postBuild}
      '';

  linkFarm =
    name: entries:
    mk name { } ''
      mkdir -p "$out"
      ${lib.concatMapStringsSep "\n" (e: "ln -s ${e.path} \"$out\"/${lib.escapeShellArg e.name}") entries}
    '';

  makeWrapper = mk "make-wrapper" { } ''
    mkdir -p $out/bin
    cp ${./makewrapper.sh} $out/bin/makeWrapper
    chmod +x $out/bin/makeWrapper
  '';
  makeBinaryWrapper = makeWrapper;

  hostTool =
    pname: programs:
    mk "${pname}-host"
      {
        inherit pname;
        version = "host";
        meta.mainProgram = lib.head programs;
      }
      ''
        mkdir -p $out/bin
        PATH=$PATH:/usr/sbin
        # type -P, because `true` is a builtin as well.
        for p in ${toString programs}; do ln -s "$(type -P "$p" || echo /nonexistent/$p)" $out/bin/$p; done
      '';
}
