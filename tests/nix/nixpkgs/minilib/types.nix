# Option types: `check` accepts a definition, `merge loc defs` makes one value of several.
{ lib }:
let
  inherit (builtins)
    attrNames
    elem
    filter
    head
    isAttrs
    isBool
    isFloat
    isFunction
    isInt
    isList
    isString
    length
    match
    stringLength
    substring
    ;
  inherit (lib)
    concatMap
    optional
    nameValuePair
    showOption
    ;
  inherit (lib.definitions)
    merge
    pushDown
    discharge
    describe
    show
    ;

  mkOptionType =
    attrs:
    {
      _type = "option-type";
      merge = mergeEqual;
      check = _: true;
      description = attrs.name;
      getSubOptions = _: { };
      nestedTypes = { };
    }
    // attrs;

  mergeOne =
    loc: defs:
    if length defs == 1 then
      (head defs).value
    else
      throw "The option `${showOption loc}' is defined multiple times while it's expected to be unique.\nDefinition values:${show defs}";
  mergeEqual =
    loc: defs:
    if length defs == 1 || lib.all (d: d.value == (head defs).value) defs then
      (head defs).value
    else
      throw "The option `${showOption loc}' has conflicting definition values:${show defs}";

  isPathString = x: lib.isStringLike x && substring 0 1 (toString x) == "/";
  isInStore = x: lib.hasPrefix "${builtins.storeDir}/" (toString x);
in
rec {
  inherit mkOptionType;

  raw = mkOptionType {
    name = "raw";
    description = "raw value";
    merge = mergeOne;
  };
  unspecified = mkOptionType {
    name = "unspecified";
    description = "unspecified value";
  };
  anything = mkOptionType {
    name = "anything";
    merge =
      loc: defs:
      if lib.all (d: isAttrs d.value && !(lib.isDerivation d.value)) defs then
        (attrsOf anything).merge loc defs
      else if lib.all (d: isList d.value) defs then
        concatMap (d: d.value) defs
      else
        mergeEqual loc defs;
  };

  # ── scalars ───────────────────────────────────────────────────────────
  bool = mkOptionType {
    name = "bool";
    description = "boolean";
    check = isBool;
  };
  int = mkOptionType {
    name = "int";
    description = "signed integer";
    check = isInt;
  };
  float = mkOptionType {
    name = "float";
    description = "floating point number";
    check = isFloat;
  };
  number = either int float;
  numbers = {
    between =
      lowest: highest:
      addCheck number (x: x >= lowest && x <= highest)
      // {
        name = "numberBetween";
        description = "integer or floating point number between ${builtins.toJSON lowest} and ${builtins.toJSON highest} (both inclusive)";
      };
    nonnegative = addCheck number (x: x >= 0) // {
      name = "numberNonnegative";
      description = "nonnegative integer or floating point number, meaning >=0";
    };
    positive = addCheck number (x: x > 0) // {
      name = "numberPositive";
      description = "positive integer or floating point number, meaning >0";
    };
  };
  addCheck = type: check: type // { check = x: type.check x && check x; };
  str = mkOptionType {
    name = "str";
    description = "string";
    check = isString;
  };
  lines = mkOptionType {
    name = "lines";
    description = "strings concatenated with \"\\n\"";
    check = isString;
    merge = _: defs: builtins.concatStringsSep "\n" (map (d: d.value) defs);
  };
  strMatching =
    pattern:
    mkOptionType {
      name = "strMatching";
      description = "string matching the pattern ${pattern}";
      check = x: isString x && match pattern x != null;
    };
  path = mkOptionType {
    name = "path";
    description = "absolute path";
    check = isPathString;
  };
  externalPath = pathWith {
    absolute = true;
    inStore = false;
  };
  pathWith =
    { absolute, inStore }:
    mkOptionType {
      name = "path";
      description =
        (if absolute then "absolute" else "relative")
        + " path "
        + (if inStore then "in" else "not in")
        + " the Nix store";
      check = x: isString x && isPathString x == absolute && isInStore x == inStore;
    };
  package = mkOptionType {
    name = "package";
    check = x: lib.isDerivation x || lib.isStorePath x;
    merge = mergeOne;
  };
  port = ints.between 0 65535 // {
    description = "16 bit unsigned integer; between 0 and 65535 (both inclusive)";
  };
  ints = {
    unsigned = mkOptionType {
      name = "unsignedInt";
      description = "unsigned integer, meaning >=0";
      check = x: isInt x && x >= 0;
    };
    between =
      lowest: highest:
      mkOptionType {
        name = "intBetween";
        description = "integer between ${toString lowest} and ${toString highest} (both inclusive)";
        check = x: isInt x && x >= lowest && x <= highest;
      };
    positive = mkOptionType {
      name = "positiveInt";
      description = "positive integer, meaning >0";
      check = x: isInt x && x > 0;
    };
  };
  enum =
    values:
    mkOptionType {
      name = "enum";
      description =
        if length values == 1 then
          "value ${describe (head values)} (singular enum)"
        else
          "one of ${lib.concatMapStringsSep ", " describe values}";
      check = x: elem x values;
    };

  # ── compounds ─────────────────────────────────────────────────────────
  listOf =
    t:
    mkOptionType {
      name = "listOf";
      nestedTypes.elemType = t;
      description = "list of ${t.description}";
      check = isList;
      emptyValue = [ ];
      merge =
        loc: defs:
        concatMap (
          d:
          lib.imap0 (
            i: v:
            merge (loc ++ [ "[definition 1-entry ${toString (i + 1)}]" ]) t [
              {
                inherit (d) file;
                value = v;
              }
            ]
          ) d.value
        ) defs;
    };
  attrsOf =
    t:
    mkOptionType {
      name = "attrsOf";
      nestedTypes.elemType = t;
      getSubOptions = prefix: t.getSubOptions (prefix ++ [ "<name>" ]);
      description = "attribute set of ${t.description}";
      check = isAttrs;
      emptyValue = { };
      merge =
        loc: defs:
        let
          flat = concatMap (
            d:
            map (value: {
              inherit (d) file;
              inherit value;
            }) (pushDown d.value)
          ) defs;
          names = lib.unique (concatMap (d: attrNames d.value) flat);
          defsOf =
            n:
            concatMap (
              d:
              optional (d.value ? ${n}) {
                inherit (d) file;
                value = d.value.${n};
              }
            ) flat;
          isDefined = n: concatMap discharge (defsOf n) != [ ];
        in
        builtins.listToAttrs (
          map (n: nameValuePair n (merge (loc ++ [ n ]) t (defsOf n))) (filter isDefined names)
        );
    };
  lazyAttrsOf = attrsOf;
  nullOr =
    t:
    mkOptionType {
      name = "nullOr";
      nestedTypes.elemType = t;
      inherit (t) getSubOptions;
      description = "null or ${t.description}";
      check = x: x == null || t.check x;
      emptyValue = null;
      merge =
        loc: defs:
        if lib.all (d: d.value == null) defs then
          null
        else if lib.any (d: d.value == null) defs then
          throw "The option `${showOption loc}' is defined both null and not null.${show defs}"
        else
          t.merge loc defs;
    };
  either =
    a: b:
    mkOptionType {
      name = "either";
      nestedTypes = {
        left = a;
        right = b;
      };
      description = "${a.description} or ${b.description}";
      check = x: a.check x || b.check x;
      merge =
        loc: defs:
        if lib.all (d: a.check d.value) defs then
          a.merge loc defs
        else if lib.all (d: b.check d.value) defs then
          b.merge loc defs
        else
          mergeEqual loc defs;
    };
  oneOf = ts: if length ts == 1 then head ts else either (head ts) (oneOf (builtins.tail ts));
  coercedTo =
    from: convert: to:
    mkOptionType {
      name = "coercedTo";
      nestedTypes = {
        finalType = to;
        coercedType = from;
      };
      inherit (to) getSubOptions;
      description = "${to.description} or ${from.description} convertible to it";
      check = x: to.check x || from.check x;
      merge =
        loc: defs:
        to.merge loc (
          map (d: d // { value = if from.check d.value then convert d.value else d.value; }) defs
        );
    };
  functionTo =
    t:
    mkOptionType {
      name = "functionTo";
      nestedTypes.elemType = t;
      description = "function that evaluates to a(n) ${t.description}";
      check = isFunction;
      merge =
        loc: defs: argument:
        merge (loc ++ [ "<function body>" ]) t (
          map (d: {
            inherit (d) file;
            value = d.value argument;
          }) defs
        );
    };
  submodule =
    module:
    submoduleWith {
      modules = [ module ];
      shorthandOnlyDefinesConfig = true;
    };
  submoduleWith =
    {
      modules,
      specialArgs ? { },
      shorthandOnlyDefinesConfig ? false,
    }:
    let
      evaluate =
        prefix: name: more:
        lib.evalModules {
          inherit prefix specialArgs;
          modules = modules ++ [ { _module.args.name = name; } ] ++ more;
        };
    in
    mkOptionType {
      name = "submodule";
      getSubOptions = prefix: (evaluate prefix "<name>" [ ]).options;
      check = x: isAttrs x || isFunction x;
      emptyValue = { };
      merge =
        loc: defs:
        (evaluate loc (lib.last loc) (
          map (d: {
            _file = d.file;
            config = d.value;
          }) defs
        )).config;
    };
}
