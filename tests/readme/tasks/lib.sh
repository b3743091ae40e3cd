# Sourced by each task: a new user's shell, after the README's section "Install". Nothing here is known to the agent.
set -eu
PATH=$HOME/.local/bin:$PATH
TASKS=${TASKS:-/checkout/tests/readme/tasks}
PYTHON=$HOME/.local/share/hermes-agent/bin/python
[ -x "$PYTHON" ] || PYTHON=python3

fail() { echo "STUMBLED: $*" >&2; exit 1; }

# says PATTERN COMMAND…: run it, show what it prints, and want the pattern in it, whatever its status is
says() {
  wanted=$1; shift
  echo "\$ $*"
  output=$("$@" </dev/null 2>&1) || true
  printf '%s\n' "$output"
  printf '%s\n' "$output" | grep -qE -e "$wanted" || fail "\`$*\` does not say \`$wanted\`"
}

# wait_for COMMAND…: try it each second, at most a minute
wait_for() {
  for _ in $(seq 60); do "$@" >/dev/null 2>&1 && return 0; sleep 1; done
  fail "a minute was not enough for: $*"
}

# a model server of the user's own, which calls the tool that it is told to call
with_model() {
  rm -f "$HOME/model-url" # of the last boot
  "$PYTHON" "$TASKS/../../peers/obedient.py" "$HOME/model-url" &
  started="${started:-} $!"
  wait_for test -s "$HOME/model-url"
  hermes config set model.base_url "$(cat "$HOME/model-url")"
  hermes config set model.default scripted-model
}

started=
trap 'kill $started 2>/dev/null || true' EXIT
