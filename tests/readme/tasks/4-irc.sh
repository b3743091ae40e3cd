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
