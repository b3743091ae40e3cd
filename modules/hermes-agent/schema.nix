# The options of `settings`, from the schema that the agent, its checks and docs/reference/config.md have, too: a key is
# named, typed and described there, once.
#
# known: the sections of the agent by name.
# special: by the name of a key, what NixOS says otherwise: { "terminal.cwd" = { default = …; more = " …"; }; … }, where
# `more` follows the description.
{
  lib,
  format,
  special,
}:
let
  inherit (lib) mkOption types;
  whole = lib.importJSON ../../hermes/hermes_agent/config/schema.json;

  # As `resolve` in hermes_agent/config/schema.py: keywords beside the `$ref` win.
  resolve =
    node:
    if !(node ? "$ref") then
      node
    else
      let
        shared = whole."$defs".${lib.removePrefix "#/$defs/" node."$ref"};
      in
      shared
      // builtins.removeAttrs node [ "$ref" ]
      // {
        properties = shared.properties or { } // node.properties or { };
      };

  kinds = node: lib.filter (kind: kind != "null") (lib.toList (node.type or [ ]));
  isMapping = node: kinds node == [ "object" ] && node.properties or { } != { };
  # Of every name in a mapping; null where the schema says nothing about it.
  others =
    node:
    if lib.isAttrs (node.additionalProperties or null) then resolve node.additionalProperties else null;

  # The exact bounds, where the type has only a part of them, are in the description, and the agent's check has them.
  limits =
    node:
    let
      low = node.minimum or null;
      high = node.maximum or null;
    in
    lib.optional (
      low != null && high == null && low != 0 && low != 1
    ) "At least ${builtins.toJSON low}.";
  integer =
    node:
    if node ? minimum && node ? maximum then
      types.ints.between node.minimum node.maximum
    else if !(node ? minimum) then
      types.int
    else if node.minimum > 0 then
      types.ints.positive
    else
      types.ints.unsigned;
  number =
    node:
    if node ? minimum && node ? maximum then
      types.numbers.between node.minimum node.maximum
    else if !(node ? minimum) then
      types.number
    else if node.minimum > 0 then
      types.numbers.positive
    else
      types.numbers.nonnegative;

  ofKind = node: {
    string = types.str;
    boolean = types.bool;
    integer = integer node;
    number = number node;
    array = types.listOf (if node ? items then ofNode [ "*" ] (resolve node.items) else format.type);
    object =
      if node.properties or { } != { } then
        mapping [ "*" ] node
      else if others node != null then
        types.attrsOf (types.nullOr (ofNode [ "<name>" ] (others node)))
      else
        format.type;
  };

  # ofNode :: path -> node -> type
  # What JSON knows as null is left to `option`.
  ofNode =
    path: node:
    if node ? enum then
      types.enum (lib.filter (value: value != null) node.enum)
    # Several modules may say something of the model; elsewhere a text stays one.
    else if path == [ "model" ] then
      types.coercedTo types.str (text: { ${node.x-text-is} = text; }) (mapping path node)
    else if node ? x-text-is then
      types.either types.str (mapping path node)
    else if isMapping node then
      mapping path node
    else if kinds node == [ ] then
      format.type
    else
      types.oneOf (map (kind: (ofKind node).${kind}) (kinds node));

  # A misspelled key is told by the agent's own check while building: it knows the right one, and those of plugins.
  mapping =
    path: node:
    types.submodule {
      freeformType = format.type;
      options = lib.mapAttrs (name: below: option (path ++ [ name ]) (resolve below)) (
        node.properties or { }
      );
    };

  describe =
    node:
    lib.concatStringsSep " " (
      [ (node.description or "") ]
      ++ lib.optional (node ? x-unit) "In ${node.x-unit}."
      ++ limits node
      ++
        lib.optional (node.x-secret or false)
          "A secret is not written here, where everybody could read it: {option}`services.hermes-agent.credentials` has it."
      ++ lib.optional (
        lib.isString (node.x-effect or null) && node.x-effect != "used"
      ) "(Without effect: ${node.x-effect})"
    );

  option =
    path: node:
    mkOption (
      {
        description = describe node + (of path).more or "";
        type = types.nullOr (ofNode path node);
      }
      // (
        if lib.elem "object" (kinds node) && !(lib.elem "array" (kinds node)) && !(node ? enum) then
          {
            default = { };
            apply = value: if value == null then { } else value;
          }
        else
          {
            default = null;
            defaultText = lib.literalMD (
              if node ? default then
                "null, which leaves it to the agent: `${builtins.toJSON node.default}`"
              else
                "null"
            );
          }
      )
      // builtins.removeAttrs (of path) [ "more" ]
    );
  of = path: special.${lib.concatStringsSep "." path} or { };

  # What was set: without null, and without the mappings that are there only because they are declared.
  declared =
    node: value:
    if lib.isList value then
      map (declared (resolve (node.items or { }))) value
    else if !(lib.isAttrs value) || lib.isDerivation value then
      value
    else
      let
        known = node.properties or { };
        below =
          name:
          if known ? ${name} then
            resolve known.${name}
          else
            let
              other = others node;
            in
            if other == null then { } else other;
        kept = lib.mapAttrs (name: declared (below name)) (lib.filterAttrs (_: each: each != null) value);
      in
      lib.filterAttrs (name: each: !(known ? ${name} && each == { })) kept;
in
{
  known = whole.properties;
  type = mapping [ ] whole;
  declared = declared whole;
}
