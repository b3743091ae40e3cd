# README, "Use": `hermes gateway setup irc`, then pairing and approvals in the chat. The server is ngircd, as Debian has it.
. "${TASKS:-/checkout/tests/readme/tasks}/lib.sh"
with_model
cat > "$HOME/ngircd.conf" <<CONF
[Global]
Name = irc.test
Info = a server of one's own
Listen = 127.0.0.1
Ports = 6667
[Options]
PAM = no
DNS = no
Ident = no
CONF
/usr/sbin/ngircd -n -f "$HOME/ngircd.conf" >"$HOME/ngircd.log" 2>&1 &
started="$started $!"
wait_for "$PYTHON" -c 'import socket; socket.create_connection(("127.0.0.1", 6667))'
converse() { "$PYTHON" "$TASKS/irc_person.py" 6667 ann "$nick" "$@"; }

# the questions of setup, answered at a terminal: at first with TLS, which this server does not have
"$PYTHON" "$TASKS/typist.py" hermes gateway setup irc -- "Host name" 127.0.0.1 Channels '#hermes' Port 6667 \
  "TLS (" yes "Correct" y "TLS (" no | tee "$HOME/setup.txt"
grep -q 'no TLS at port 6667' "$HOME/setup.txt" || fail "setup does not say that it is TLS which is missing"
grep -q 'Connected\.' "$HOME/setup.txt" || fail "setup did not connect with the corrected answers"
nick=$(sed -nE 's/.*The nick is ([^:]+):.*/\1/p' "$HOME/setup.txt")
[ -n "$nick" ] || fail "setup does not say which nick it has: this server takes nine characters"
grep -q 'hermes pairing approve' "$HOME/setup.txt" || fail "setup does not say how people are let in"
grep -q 'hermes gateway run' "$HOME/setup.txt" || fail "setup does not say what connects it"

hermes gateway run >"$HOME/daemon.log" 2>&1 &
started="$started $!"
connected() { hermes gateway status | grep -q 'irc.* connected'; }
wait_for connected

# a stranger gets a code, and its command; the operator runs that command
converse say:hello 'hear:hermes pairing approve irc [A-Z0-9]+' | tee "$HOME/stranger.txt"
says 'ann' $(grep -oE 'hermes pairing approve irc [A-Z0-9]+' "$HOME/stranger.txt")
says 'ann' hermes pairing list
converse say:hello 'hear:Nothing to do'

# help is short; a dangerous command waits for an answer, either way
converse say:'!help' 'hear:!help all' | tee "$HOME/help.txt"
[ "$(wc -l <"$HOME/help.txt")" -le 3 ] || fail "!help is more than three lines"
converse 'say:use terminal {"command": "mkdir build && touch build/kept && pwd"}' "hear:$HOME/.hermes/workspace"
work=$HOME/.hermes/workspace
[ -e "$work/build/kept" ] || fail "a command of a chat does not write where the daemon works"
says "works in $work" hermes gateway status
remove="say:use terminal {\"command\": \"rm -rf $work/build\"}"
converse "$remove" 'hear:!approve' say:'!deny' 'hear:The tool said'
[ -e "$work/build/kept" ] || fail "what was denied was done"
converse "$remove" 'hear:!approve' say:'!approve' 'hear:The tool said'
[ ! -e "$work/build" ] || fail "what was approved was not done"

says 'turn ended: answered' hermes logs -n 50
says 'stopped|ended' hermes gateway stop
