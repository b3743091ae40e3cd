# A model on this machine: llama.cpp's server with a file of the store, so that a host without any key answers.
{
  config,
  instance,
  lib,
  pkgs,
  utils,
  ...
}:
let
  inherit (lib)
    mkDefault
    mkIf
    mkOption
    types
    ;
  cfg = config;
  local = cfg.localModel;
  # A path beside the configuration goes into the store, one as a text stays where it is.
  weights =
    if lib.isPath local.model || lib.isDerivation local.model then
      "${local.model}"
    else
      toString local.model;
  url = "http://127.0.0.1:${toString local.port}/v1";
in
{
  options.localModel = {
    enable = lib.mkEnableOption "a model on this machine, which needs no key";

    package = lib.mkPackageOption pkgs "llama-cpp" { };

    model = mkOption {
      type = types.nullOr types.path;
      default = null;
      example = lib.literalExpression ''pkgs.fetchurl { url = "https://…/model.gguf"; hash = "sha256-…"; }'';
      description = "The weights, a file in the format GGUF.";
    };

    name = mkOption {
      type = types.str;
      default = "local-model";
      description = "What the model is called in the settings and in the record of usage.";
    };

    contextLength = mkOption {
      type = types.ints.positive;
      default = 16384;
      description = "Tokens that it sees at once; more take more memory.";
    };

    port = mkOption {
      type = types.port;
      default = 8641;
      description = "Port of its server, on this machine alone.";
    };

    extraArgs = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [
        "--n-gpu-layers"
        "99"
      ];
      description = "Further arguments of `llama-server`.";
    };
  };

  config = mkIf local.enable {
    assertions = [
      {
        assertion = local.model != null;
        message = "${instance.option}.localModel: there is no `model`; set it to a GGUF file, such as pkgs.fetchurl { url = …; hash = …; }.";
      }
    ];

    settings.model = {
      provider = mkDefault "custom";
      default = mkDefault local.name;
      base_url = mkDefault url;
      context_length = mkDefault local.contextLength;
    };

    parts = lib.toList {
      systemd.services.${instance.unit} = {
        wants = [ "${instance.localModel}.service" ];
        after = [ "${instance.localModel}.service" ];
      };

      systemd.services.${instance.localModel} = {
        description =
          "Model of the Hermes agent" + lib.optionalString (!instance.plain) " ${instance.name}";
        wantedBy = [ "multi-user.target" ];
        serviceConfig = {
          ExecStart = utils.escapeSystemdExecArgs (
            [
              (lib.getExe' local.package "llama-server")
              "--model"
              weights
              "--alias"
              local.name
              "--ctx-size"
              (toString local.contextLength)
              "--host"
              "127.0.0.1"
              "--port"
              (toString local.port)
              "--jinja"
            ]
            ++ local.extraArgs
          );
        }
        // lib.mapAttrs (_: mkDefault) {
          Restart = "on-failure";
          DynamicUser = true;
          UMask = "0077";
          CapabilityBoundingSet = "";
          # A graphics card is a device: DeviceAllow and PrivateDevices = false give it.
          PrivateDevices = true;
          DevicePolicy = "closed";
          PrivateUsers = true;
          PrivateIPC = true;
          ProtectHome = true;
          ProtectClock = true;
          ProtectControlGroups = true;
          ProtectHostname = true;
          ProtectKernelLogs = true;
          ProtectKernelModules = true;
          ProtectKernelTunables = true;
          ProtectProc = "invisible";
          LockPersonality = true;
          RestrictNamespaces = true;
          RestrictRealtime = true;
          RestrictAddressFamilies = [
            "AF_INET"
            "AF_UNIX"
          ];
          # It answers this machine and opens no connection.
          IPAddressAllow = "localhost";
          IPAddressDeny = "any";
          SystemCallArchitectures = "native";
          SystemCallFilter = [
            "@system-service"
            "~@privileged @obsolete"
          ];
          SystemCallErrorNumber = "EPERM";
        };
      };
    };
  };
}
