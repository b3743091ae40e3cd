# A pkgs-like set on the host's own tools, for machines without nixpkgs: real derivations,
# real store paths, real build failures; only the toolchain is the host's, so builders run
# with `--option sandbox false`. `host` is what ../host.py says of the machine.
{
  lib,
  host,
  system,
}:
let
  build = import ./build.nix { inherit lib host system; };
  interpreters = import ./python.nix {
    inherit lib host;
    inherit (build) mk buildEnv;
  };

  jsonValue =
    with lib.types;
    let
      value =
        nullOr (oneOf [
          bool
          int
          float
          str
          path
          (attrsOf value)
          (listOf value)
        ])
        // {
          description = "JSON value";
        };
    in
    value;

  pkgs =
    build
    // interpreters
    // {
      inherit lib system;
      callPackage = lib.callPackageWith pkgs;
      stdenv = {
        hostPlatform = {
          inherit system;
          isLinux = true;
        };
        cc.cc.lib = build.mk "gcc-lib" { } "mkdir $out";
      };
      formats.json = _: {
        type = jsonValue;
        generate =
          name: value:
          build.runCommand name {
            text = builtins.toJSON value;
            passAsFile = [ "text" ];
          } ''${host.python} -m json.tool --indent 2 --no-ensure-ascii "$textPath" "$out"'';
      };

      bash = build.hostTool "bash" [
        "bash"
        "sh"
      ];
      bashInteractive = pkgs.bash;
      bubblewrap = build.hostTool "bubblewrap" [ "bwrap" ];
      coreutils = build.hostTool "coreutils" [
        "cat"
        "chmod"
        "cp"
        "dirname"
        "env"
        "kill"
        "head"
        "id"
        "install"
        "ln"
        "ls"
        "mkdir"
        "mktemp"
        "mv"
        "rm"
        "sha256sum"
        "sleep"
        "sort"
        "stat"
        "true"
      ];
      findutils = build.hostTool "findutils" [
        "find"
        "xargs"
      ];
      curl = build.hostTool "curl" [ "curl" ];
      diffutils = build.hostTool "diffutils" [
        "cmp"
        "diff"
      ];
      gawk = build.hostTool "gawk" [ "awk" ];
      gnutar = build.hostTool "gnutar" [ "tar" ];
      gzip = build.hostTool "gzip" [
        "gunzip"
        "gzip"
        "zcat"
      ];
      procps = build.hostTool "procps" [
        "pgrep"
        "pkill"
        "ps"
      ];
      # Programs that are there, whether or not the machine has them.
      nodejs = build.runCommand "nodejs-host" { } ''
        mkdir -p $out/bin
        for p in node npm npx; do printf '#!/bin/sh\nexec /usr/bin/%s "$@"\n' $p > $out/bin/$p; done
        chmod +x $out/bin/*
      '';
      git = build.hostTool "git" [ "git" ];
      gnumake = build.hostTool "gnumake" [ "make" ];
      gnugrep = build.hostTool "gnugrep" [ "grep" ];
      gnused = build.hostTool "gnused" [ "sed" ];
      jq = build.hostTool "jq" [ "jq" ];
      systemd = build.hostTool "systemd" [ "systemd-analyze" ];
      # Evaluates as nixpkgs' does; there is nothing to fetch it with.
      fetchFromGitHub =
        {
          owner,
          repo,
          rev,
          hash,
          name ? "source",
        }:
        build.runCommand name {
          inherit
            owner
            repo
            rev
            hash
            ;
        } ''echo "error: no network for $owner/$repo" >&2; exit 1'';
      # A file of the folder `host.files`, and no other than the one of the hash.
      fetchPypi =
        {
          pname,
          version,
          hash,
          format ? "setuptools",
          dist ? "py2.py3",
          abi ? "none",
          platform ? "any",
          ...
        }:
        let
          file =
            "${pname}-${version}"
            + (if format == "wheel" then "-${dist}-${abi}-${platform}.whl" else ".tar.gz");
        in
        derivation {
          name = file;
          inherit system;
          outputHashMode = "flat";
          outputHashAlgo = "sha256";
          outputHash = hash;
          files = host.files or "";
          PATH = "/usr/bin:/bin";
          builder = "/bin/bash";
          args = [
            "-c"
            ''cp "$files/$name" "$out" || { echo "error: no network for $name" >&2; exit 1; }''
          ];
        };
      autoPatchelfHook = build.mk "auto-patchelf-hook" { } "mkdir $out";
      # The server itself where the machine has it as a Python package; else one that answers nothing.
      llama-cpp = build.writeShellScriptBin "llama-server" (
        if pkgs.python3.pkgs ? xllamacpp then
          "exec ${(pkgs.python3.withPackages (ps: [ ps.xllamacpp ])).interpreter} ${./llama_server.py} \"$@\""
        else
          "exec sleep infinity"
      );
      util-linux = build.hostTool "util-linux" [ "runuser" ];
      nixfmt = build.writeShellScriptBin "nixfmt" "echo 'nixfmt is not in the stand-in package set' >&2; exit 1";

      mkShell =
        {
          packages ? [ ],
          shellHook ? "",
        }:
        derivation {
          name = "nix-shell";
          inherit system shellHook;
          outputs = [ "out" ];
          builder = "/bin/bash";
          # `nix develop` reads the environment with bash and wants a stdenv to source.
          stdenv = build.writeTextFile {
            name = "stdenv";
            destination = "/setup";
            text = "";
          };
          PATH = lib.makeBinPath packages + ":/usr/bin:/bin";
          args = [
            "-c"
            "mkdir $out"
          ];
        };
    };
in
pkgs
