# Declaring options, and modules that rename or retire them.
{ lib }:
rec {
  mkOption = attrs: { _type = "option"; } // attrs;

  mkEnableOption =
    what:
    mkOption {
      type = lib.types.bool;
      default = false;
      example = true;
      description = "Whether to enable ${what}.";
    };

  mkPackageOption =
    pkgs: name:
    {
      default ? name,
      pkgsText ? "pkgs",
      extraDescription ? "",
    }:
    let
      path = lib.toList default;
    in
    mkOption {
      type = lib.types.package;
      default =
        lib.attrByPath path (throw "${lib.showAttrPath path} cannot be found in ${pkgsText}")
          pkgs;
      defaultText = lib.literalExpression "${pkgsText}.${lib.showAttrPath path}";
      description =
        "The ${name} package to use." + lib.optionalString (extraDescription != "") " ${extraDescription}";
    };

  mkRemovedOptionModule = path: advice: { options, ... }: {
    options = lib.setAttrByPath path (mkOption {
      visible = false;
      apply =
        _:
        throw "The option `${lib.showOption path}' can no longer be used since it's been removed. ${advice}";
    });
    config.assertions =
      let
        option = lib.getAttrFromPath path options;
      in
      [
        {
          assertion = !option.isDefined;
          message = ''
            The option definition `${lib.showOption path}' in ${
              lib.concatMapStringsSep " and " (f: "`${f}'") option.files
            } no longer has any effect; please remove it.
            ${advice}
          '';
        }
      ];
  };
}
