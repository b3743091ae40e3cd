# What two agents of one host cannot both have: { assertions, warnings }, which name both.
#
# all: instances that are enabled.
# apart: whether each has a user of its own, who sees nothing of the others; in a home they are of one user.
{ lib }:
{
  all,
  apart ? true,
}:
let
  inherit (lib)
    concatLists
    concatMap
    filter
    hasPrefix
    imap0
    length
    optional
    optionals
    sublist
    ;
  inherit (import ./names.nix { inherit lib; }) homeOf;
  said = each: "`${each.instance.name}`";
  pairs = concatLists (
    imap0 (i: one: map (other: { inherit one other; }) (sublist (i + 1) (length all) all)) all
  );
  prefix = "services.hermes-agent";
  differ = text: ok: {
    assertion = ok;
    message = "${prefix}: the instances ${text}";
  };

  # ── ports ─────────────────────────────────────────────────────────────
  settingsPorts = import ./ports.nix { inherit lib; };
  anywhere =
    host:
    lib.elem host [
      "0.0.0.0"
      "::"
      ""
      "*"
    ];
  address = host: if host == "localhost" then "127.0.0.1" else host;
  meet =
    a: b: a.port == b.port && (anywhere a.host || anywhere b.host || address a.host == address b.host);
  ports =
    { one, other }:
    concatMap (
      mine:
      map (
        theirs:
        differ "${said one} (${mine.option}) and ${said other} (${theirs.option}) both listen on port ${toString mine.port}. Set ${other.instance.option}.${theirs.option} to another." false
      ) (filter (meet mine) (settingsPorts other))
    ) (settingsPorts one);

  # ── who, and where ────────────────────────────────────────────────────
  below = parent: path: path == parent || hasPrefix "${parent}/" path;
  home = each: if apart then each.stateDir else homeOf each;
  overlap =
    { one, other }:
    let
      within =
        a: b:
        optional (below (home b) a.workingDirectory && a.workingDirectory != home a) (
          differ "${said a} and ${said b} are not apart: `${a.workingDirectory}`, where ${said a} works, is in `${home b}`, the home of ${said b}. Set ${a.instance.option}.workingDirectory to a directory outside of it." false
        );
      nested = below (home one) (home other) || below (home other) (home one);
    in
    if home one == home other then
      [
        (differ "${said one} and ${said other} have one home, `${home one}`. Set ${other.instance.option}.${if apart then "stateDir" else "hermesHome"} to a directory of its own." false)
      ]
    else if !apart then
      [ ]
    else if nested then
      [
        (differ "${said one} and ${said other} have homes in each other, `${home one}` and `${home other}`. Set ${other.instance.option}.stateDir to a directory beside it." false)
      ]
    else
      within one other ++ within other one;
  identity =
    { one, other }:
    optionals apart (
      concatMap
        (
          what:
          optional (one.${what} == other.${what}) (
            differ "${said one} and ${said other} have one ${what}, `${one.${what}}`, and would read each other's keys and sessions. Drop ${other.instance.option}.${what}: each has its own." false
          )
        )
        [
          "user"
          "group"
        ]
    );
  sockets =
    { one, other }:
    let
      named = each: each.settings.terminal.exec_socket;
      socket =
        each:
        if (each.tools.sandbox or null) == null then
          null
        else if named each == null then
          each.instance.execSocket
        else
          named each;
    in
    optional (socket one != null && socket one == socket other) (
      differ "${said one} and ${said other} have commands started at one socket, `${socket one}`. Drop ${other.instance.option}.settings.terminal.exec_socket: each has its own." false
    );

  # ── names ─────────────────────────────────────────────────────────────
  names =
    { one, other }:
    optional (one.instance.name == other.instance.name) {
      assertion = false;
      message = "${prefix}: ${said one} is in both `instances` and `profiles`. Drop ${other.instance.option}.";
    };
  reserved = {
    default = "The plain options are that instance.";
    service = "`hermes-service` is the command of all of them.";
  };
  # Their users would be those of commands, workspaces and local models (names.nix).
  taken = name: builtins.match "(exec|work|local-model)(-.*)?" name != null;
  misnamed =
    each:
    let
      inherit (each.instance) kind name plain;
    in
    if plain then
      [ ]
    else if reserved ? ${name} then
      [
        {
          assertion = false;
          message = "${prefix}.${kind}: ${said each} cannot be the name of an instance. ${reserved.${name}} Choose another.";
        }
      ]
    else if taken name then
      [
        {
          assertion = false;
          message = "${prefix}.${kind}: ${said each} cannot be the name of an instance. Names that begin with exec, work or local-model are of the users of commands, workspaces and local models. Choose another.";
        }
      ]
    else
      [
        {
          assertion = builtins.match "[a-z0-9][a-z0-9_-]{0,39}" name != null;
          message = "${prefix}.${kind}: ${said each} cannot be the name of an instance. It is part of the names of units and users: lower-case letters, digits, _ and -, at most 40.";
        }
      ];
  each =
    pair:
    if names pair != [ ] then
      names pair
    else
      concatMap (check: check pair) [
        identity
        overlap
        sockets
        ports
      ];
  wrong = concatMap misnamed all;
  shared =
    { one, other }:
    optional (apart && one.workingDirectory == other.workingDirectory)
      "${prefix}: the instances ${said one} and ${said other} both work in `${one.workingDirectory}`, so that each reads and changes the other's files there. Set ${other.instance.option}.workingDirectory if that is not meant.";
in
{
  # What is called wrongly has no user, unit or home to compare.
  assertions = if lib.all (check: check.assertion) wrong then concatMap each pairs else wrong;
  warnings = concatMap shared pairs;
}
