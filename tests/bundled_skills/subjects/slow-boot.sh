# two slow units and a wait for a network that never comes started with the boot
until_ "systemctl is-system-running | grep -qE 'running|degraded'"
