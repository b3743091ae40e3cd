# README, "Use": `hermes gateway setup irc`, then pairing and an approval in the chat. The server is ngircd, as Debian has it.
. "${TASKS:-/checkout/tests/readme/tasks}/lib.sh"
with_model
command -v ngircd >/dev/null || apt-get install -q -y --no-install-recommends ngircd >/dev/null
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
ngircd -n -f "$HOME/ngircd.conf" >"$HOME/ngircd.log" 2>&1 &
started="$started $!"
wait_for sh -c "echo QUIT | timeout 5 $PYTHON -c 'import socket; socket.create_connection((\"127.0.0.1\", 6667))'"
person() { "$PYTHON" "$TASKS/irc_person.py" 6667 ann hermes-bot "$@"; }

# the questions of `hermes gateway setup irc`, answered at a terminal: first without the port, as the server has no TLS
"$PYTHON" "$TASKS/typist.py" hermes gateway setup irc -- \
  "Host name" 127.0.0.1 Channels '#hermes' "TLS" yes "TLS" no Port 6667 "again" y
