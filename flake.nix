{
  description = "LLM agent that lives on a machine as a systemd service, checked with its plugins while it is built";

  # The only input: the agent's dependencies come from the same package set as those of its plugins.
  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-26.05";

  outputs =
    { self, nixpkgs }:
    let
      inherit (nixpkgs) lib;
      forEachSystem =
        f: lib.genAttrs [ "x86_64-linux" "aarch64-linux" ] (system: f nixpkgs.legacyPackages.${system});
      packageFor = pkgs: self.packages.${pkgs.stdenv.hostPlatform.system}.hermes-agent;
    in
    {
      packages = forEachSystem (pkgs: rec {
        hermes-agent = pkgs.callPackage ./nix/package.nix { };
        default = hermes-agent;
      });

      # `nix build .#hermesPlugins.hermes-ssh.tests.agent`: the agent with one published plugin.
      legacyPackages = forEachSystem (pkgs: {
        hermesPlugins = pkgs.callPackage ./nix/plugins { };
      });

      # With `final`, so that a host's own overlays reach the agent and its plugins alike.
      overlays.default = final: _: {
        hermes-agent = final.callPackage ./nix/package.nix { };
        buildHermesPlugin = final.callPackage ./nix/build-plugin.nix { };
        # Published plugins: extraPlugins = with pkgs.hermesPlugins; [ hermes-ssh ];
        hermesPlugins = final.callPackage ./nix/plugins { };
      };

      # By path inside, so that a module that is imported twice counts once.
      nixosModules = rec {
        hermes-agent = {
          imports = [ ./modules/hermes-agent ];
        };
        default = hermes-agent;
      };

      # Called by hosts that have Home Manager; nothing of it is an input here.
      homeManagerModules = rec {
        hermes-agent = {
          imports = [ ./modules/home-manager.nix ];
        };
        default = hermes-agent;
      };

      # `nix run .` is a chat, `nix run . -- gateway run` the daemon, `nix run .#check-plugins -- DIR` a check of plugins.
      apps = forEachSystem (pkgs: rec {
        hermes = {
          type = "app";
          program = lib.getExe (packageFor pkgs);
        };
        check-plugins = {
          type = "app";
          program = lib.getExe (
            pkgs.writeShellScriptBin "check-plugins" ''
              exec ${lib.getExe (packageFor pkgs)} plugins check "$@"
            ''
          );
        };
        # `nix run .#check-config -- FILE`: whether the daemon starts with a config, here and with this package.
        check-config = {
          type = "app";
          program = lib.getExe (
            pkgs.writeShellScriptBin "check-config" ''
              exec ${lib.getExe (packageFor pkgs)} doctor --declared "$@"
            ''
          );
        };
        default = hermes;
      });

      # A package of a directory plugin: lib.mkPlugin pkgs { src = ./.; }
      lib.mkPlugin = pkgs: pkgs.callPackage ./nix/build-plugin.nix { };

      templates = rec {
        plugin-directory = {
          path = ./nix/templates/plugin-directory;
          description = "A plugin as a directory";
        };
        plugin-entry-point = {
          path = ./nix/templates/plugin-entry-point;
          description = "A plugin as a Python package";
        };
        host = {
          path = ./examples/nixos;
          description = "A NixOS host on which the agent lives";
        };
        default = plugin-directory;
      };

      checks = forEachSystem (
        pkgs:
        let
          package = packageFor pkgs;
          host = lib.nixosSystem {
            modules = [
              self.nixosModules.default
              ./examples/nixos/configuration.nix
              {
                nixpkgs.hostPlatform = pkgs.stdenv.hostPlatform.system;
                services.hermes-agent.extraPlugins = [ ./examples/plugins/calculator ];
              }
            ];
          };
          example = host.config.services.hermes-agent.finalPackage;
        in
        {
          inherit package;
          inherit (package) closureCheck pluginDir pluginCheck;
          inherit (package.gates) packageImports;
          example-plugins = example.pluginCheck;
          # The unit of the example host, once every check of its system has passed.
          example-host =
            pkgs.runCommand "example-host" { checks = map toString host.config.system.checks; }
              ''
                ln -s ${host.config.systemd.units."hermes-agent.service".unit} $out
              '';
          # The reference that the repository has is the one that the module makes.
          option-reference = pkgs.runCommand "option-reference" { } ''
            diff -u ${./docs/reference/nixos-options.md} ${
              import ./nix/option-reference.nix { inherit lib pkgs; }
            }
            touch $out
          '';
          plugin = self.lib.mkPlugin pkgs {
            pname = "calculator";
            src = ./examples/plugins/calculator;
          };
        }
        # A machine of its own, in which it is used; not with the stand-in of tests/nix, which boots a container.
        // lib.optionalAttrs (pkgs ? testers) {
          vm = import ./tests/nix/e2e/vm.nix { inherit pkgs; };
          published-plugins = pkgs.callPackage ./nix/plugins/together.nix { };
        }
      );

      devShells = forEachSystem (pkgs: {
        # What a machine without Nix has to bring; the tools are those of requirements/dev.txt, in .venv, either way.
        # Python has the version of nixpkgs, which may be later than the 3.11 of Debian 12 in ci.yml.
        default = pkgs.mkShell {
          packages = [
            pkgs.git
            pkgs.gnumake
            pkgs.python3
          ];
        };
      });

      formatter = forEachSystem (pkgs: pkgs.nixfmt);
    };
}
