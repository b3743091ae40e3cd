# { name = schema; } -> the options of `plugins.settings`, from what plugins say that they take.
#
# schema: `config_schema` of a manifest, as `buildHermesPlugin { configSchema = …; }` has it. The types are those of
# hermes_agent/plugins/manifest.py; what is required is known to the check of the start, which knows what is enabled.
{ lib, format }:
let
  inherit (lib) mkOption types;
  kinds = rec {
    str = types.str;
    string = str;
    int = types.int;
    integer = int;
    float = types.number;
    number = float;
    bool = types.bool;
    boolean = bool;
    list = types.listOf format.type;
    array = list;
    dict = types.attrsOf format.type;
    object = dict;
  };
  isSecret = spec: spec.type or "" == "secret" || spec.secret or false;
  ofSpec =
    spec:
    let
      choices = spec.choices or spec.enum or null;
      own = if choices == null then kinds.${spec.type or "string"} or format.type else types.enum choices;
      left = "null, which leaves it to the plugin";
    in
    mkOption {
      type = types.nullOr own;
      default = null;
      defaultText = lib.literalMD (
        if spec ? default then "${left}: `${builtins.toJSON spec.default}`" else left
      );
      description =
        spec.description or spec.label or spec.title or "No description."
        + lib.optionalString (spec.required or false) " (Required.)";
    };
in
schemas:
types.submodule {
  # Of plugins that say nothing at evaluation.
  freeformType = types.attrsOf (types.attrsOf format.type);
  options = lib.mapAttrs (
    name: schema:
    mkOption {
      type = types.submodule {
        options = lib.mapAttrs (_: ofSpec) (lib.filterAttrs (_: spec: !(isSecret spec)) schema);
      };
      default = { };
      description = "Settings of the plugin `${name}`.";
    }
  ) schemas;
}
