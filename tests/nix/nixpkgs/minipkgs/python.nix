# Python interpreters and their package sets: `python3` is the host's, with one store path for
# each distribution of the host's site directory.
{
  lib,
  host,
  mk,
  buildEnv,
}:
let
  # `runs`: whether the host has this interpreter, so that an environment of it can be built.
  makePython =
    {
      name,
      version,
      runs,
    }:
    let
      python =
        mk "${name}-${version}"
          {
            pname = name;
            inherit version;
            passthru = {
              inherit sitePackages;
              pythonVersion = version;
              executable = "python${version}";
              interpreter = "${python}/bin/python${version}";
              pkgs = packages;
              buildEnv = lib.makeOverridable pythonEnv { };
              withPackages = f: pythonEnv { extraLibs = f packages; };
            };
          }
          ''
            mkdir -p $out/bin $out/${sitePackages}
            echo "Packages lie in store paths of their own." > $out/${sitePackages}/README.txt
            ${lib.optionalString (!runs) ''echo "error: this machine has no Python ${version}" >&2; exit 1''}
            ln -s ${host.python} $out/bin/python3
            ln -s ${host.python} $out/bin/python${version}
          '';
      sitePackages = "lib/python${version}/site-packages";

      requiredPythonModules =
        ps:
        let
          modules = lib.filter (p: (p.pythonModule or null) == python) ps;
        in
        lib.unique (lib.concatMap (p: [ p ] ++ requiredPythonModules p.dependencies) modules);

      # A virtual environment, so that nothing of the host's own site directory shines through.
      pythonEnv =
        {
          extraLibs ? [ ],
          ignoreCollisions ? false,
          postBuild ? "",
        }:
        let
          env = buildEnv {
            name = "${name}-${version}-env";
            paths = requiredPythonModules extraLibs;
            inherit ignoreCollisions;
            passthru = {
              inherit python;
              inherit (python) sitePackages;
              interpreter = "${env}/bin/python${version}";
            };
            postBuild = ''
              mkdir -p $out/bin $out/${sitePackages}
              printf 'home = %s\ninclude-system-site-packages = false\n' ${dirOf host.python} > $out/pyvenv.cfg
              for script in $out/bin/*; do
                [ -e "$script" ] || continue
                target=$(readlink -f "$script")
                rm "$script"
                sed "1s|^#!${python}/bin/|#!$out/bin/|" "$target" > "$script"
                chmod +x "$script"
              done
              ln -s ${host.python} $out/bin/python3
              ln -s ${host.python} $out/bin/python${version}
              ${postBuild}
            '';
          };
        in
        env;

      install =
        {
          pname,
          version,
          dependencies,
          passthru ? { },
          meta ? { },
        }:
        command:
        mk "python${python.version}-${pname}-${version}"
          {
            inherit pname version meta;
            passthru = passthru // {
              inherit dependencies;
              propagatedBuildInputs = dependencies;
              pythonModule = python;
            };
          }
          ''
            ${command}
            mkdir -p $out/nix-support
            echo "${
              toString (dependencies ++ lib.optional runs python)
            }" > $out/nix-support/propagated-build-inputs
          '';

      shebang = if runs then python.interpreter else "/nonexistent";
      fromWheel =
        {
          src,
          relaxed,
          removed,
        }:
        ''
          ${host.python} ${./wheel.py} --shebang ${shebang} --relax ${toString relaxed} --remove ${toString removed} -- \
            ${src} "$out" ${sitePackages}
        '';
      fromTree =
        {
          src,
          pname,
          version,
        }:
        ''
          ${host.python} ${./install.py} --shebang ${shebang} ${src} "$out" ${
            lib.escapeShellArgs [
              pname
              version
              sitePackages
            ]
          }
        '';

      # In a copy of the source, with what the tests import.
      pytest =
        {
          src,
          inputs,
          paths,
        }:
        ''
          cp -r ${src} source && chmod -R u+w source && cd source
          HOME=$TMPDIR ${
            (pythonEnv { extraLibs = inputs ++ [ packages.pytest ]; }).interpreter
          } -m pytest -q -p no:cacheprovider ${toString paths}
        '';

      # An attribute set, or a function of itself with `finalPackage`.
      buildPythonPackage =
        given:
        if !lib.isFunction given then
          build given
        else
          lib.fix (
            self:
            let
              attrs = given (
                attrs
                // {
                  passthru = self.passthru;
                  finalPackage = self;
                }
              );
            in
            build attrs
          );

      build =
        {
          pname,
          version,
          src,
          format ? "pyproject",
          dependencies ? [ ],
          optional-dependencies ? { },
          pythonRelaxDeps ? [ ],
          pythonRemoveDeps ? [ ],
          pythonImportsCheck ? [ ],
          nativeCheckInputs ? [ ],
          enabledTestPaths ? [ ],
          installPhase ? "",
          passthru ? { },
          meta ? { },
          ...
        }:
        let
          hooks = lib.catAttrs "pname" (
            lib.filter (each: lib.hasSuffix "check-hook" (each.pname or "")) nativeCheckInputs
          );
          inputs = lib.filter (each: each ? pythonModule) nativeCheckInputs;
        in
        if format == "other" then
          mk "python${python.version}-${pname}-${version}" { inherit pname version meta; } ''
            ${lib.optionalString (lib.elem "pytest-check-hook" hooks) (pytest {
              inherit src inputs;
              paths = enabledTestPaths;
            })}
            ${installPhase}
          ''
        else
          install
            {
              inherit
                pname
                version
                dependencies
                meta
                ;
              passthru = {
                inherit optional-dependencies;
              }
              // passthru;
            }
            ''
              ${
                if format == "wheel" then
                  fromWheel {
                    inherit src;
                    relaxed = pythonRelaxDeps;
                    removed = pythonRemoveDeps;
                  }
                else
                  fromTree { inherit src pname version; }
              }
              ${lib.optionalString (lib.elem "version-check-hook" hooks) ''
                PYTHONPATH=$out/${sitePackages}:${lib.makeSearchPath sitePackages (requiredPythonModules dependencies)} HOME=$TMPDIR \
                  $out/bin/${meta.mainProgram} --version | grep -F "${version}"
              ''}
              for module in ${toString pythonImportsCheck}; do
                PYTHONPATH=$out/${sitePackages}:${lib.makeSearchPath sitePackages (requiredPythonModules dependencies)} \
                  ${host.python} -S -c "import $module"
              done
            '';

      # One distribution of a site directory as a store path, with its dependencies from `set`.
      fromSite =
        set: site: name:
        {
          version,
          dependencies,
          digest,
          ...
        }:
        install
          {
            pname = name;
            inherit version;
            dependencies = map (
              d: set.${d} or (throw "the host's ${name} wants ${d}, which is not in ${site}")
            ) dependencies;
          }
          ''
            # ${digest}
            ${host.python} ${./take.py} ${site} ${name} "$out/${sitePackages}"
          '';

      # Of nixpkgs' set what hosts of the tests ask for by group, with nothing in it.
      imagined =
        lib.genAttrs
          [
            "discordpy"
            "hindsight-client"
            "python-telegram-bot"
            "slack-bolt"
            "slack-sdk"
            "slixmpp"
            "mcp"
          ]
          (
            pname:
            install {
              inherit pname;
              version = "1.0";
              dependencies = [ ];
            } "mkdir $out"
          );

      packages =
        imagined
        // lib.mapAttrs (_: name: packages.${name}) (host.aliases or { })
        // builtins.mapAttrs (
          name: each: fromSite packages (each.site or host.site) name each
        ) host.distributions
        // {
          inherit
            python
            buildPythonPackage
            requiredPythonModules
            fromSite
            ;
          toPythonApplication = package: package;
          pytestCheckHook = mk "pytest-check-hook" {
            pname = "pytest-check-hook";
            version = "host";
          } "mkdir $out";
          versionCheckHook = mk "version-check-hook" {
            pname = "version-check-hook";
            version = "host";
          } "mkdir $out";
          callPackage = lib.callPackageWith packages;
          inherit lib;
          # Build systems: install.py does their work.
          setuptools = mk "setuptools" { } "mkdir $out";
          hatchling = mk "hatchling" { } "mkdir $out";
        };
    in
    python;

  named = rec {
    python3 = makePython {
      name = "python3";
      inherit (host) version;
      runs = true;
    };
    # The same version in another interpreter, and one that is too old for the agent and never runs.
    python3Minimal = makePython {
      name = "python3-minimal";
      inherit (host) version;
      runs = true;
    };
    # The one that the plugin guide names.
    python312 =
      if host.version == "3.12" then
        python3
      else
        makePython {
          name = "python3";
          version = "3.12";
          runs = false;
        };
    python310 = makePython {
      name = "python3";
      version = "3.10";
      runs = false;
    };
  };
in
named // lib.mapAttrs' (name: python: lib.nameValuePair "${name}Packages" python.pkgs) named
