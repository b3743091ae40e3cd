"""The program as a system service: systemd, the control socket, one daemon per home."""
