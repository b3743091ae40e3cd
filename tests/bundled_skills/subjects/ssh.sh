# sshd refuses a good key because others may write the folder; the agent holds many keys
mkdir -p /run/sshd ~/.ssh
cd ~/.ssh
ssh-keygen -qt ed25519 -N '' -C root@shop -f id_ed25519
cp id_ed25519.pub authorized_keys
ssh-keygen -A >/dev/null
printf 'Host shop\n  HostName localhost\n  Port 22\n  User root\n' >config
chmod 600 config authorized_keys
chmod 777 ~/.ssh
systemctl start ssh
until_ "ss -Htln | grep -q :22"
ssh-keyscan -t ed25519 localhost >known_hosts 2>/dev/null
! ssh -o BatchMode=yes shop true 2>/dev/null
until_ "journalctl -u ssh --no-pager | grep -q 'bad ownership'"
ssh-agent -a /run/agent >/dev/null
export SSH_AUTH_SOCK=/run/agent
for n in $(seq 7); do ssh-keygen -qt ed25519 -N '' -C "key-$n" -f /run/key-$n && ssh-add -q /run/key-$n; done
cd /
