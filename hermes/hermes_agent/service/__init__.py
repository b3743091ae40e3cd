"""Being a good service: readiness and watchdog, one daemon per home, logs, stopping in order."""
