until_() { # a command: wait until it succeeds
  for _ in $(seq 300); do eval "$1" && return 0; sleep 0.1; done
  echo "never: $1" >&2
  exit 1
}
named() { printf '%s=%s\n' "$1" "$2" >>/run/names; } # NAME value: what a word in capitals stands for
