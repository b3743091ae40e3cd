# What the agent's terminal tool, and its plugins, may expect of a machine.
{ pkgs }:
[
  pkgs.bash
  pkgs.coreutils
  pkgs.findutils
  pkgs.gnugrep
  pkgs.gnused
  pkgs.gawk
  pkgs.diffutils
  pkgs.gnutar
  pkgs.gzip
  pkgs.procps
  pkgs.curl
  pkgs.git
]
