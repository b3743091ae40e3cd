"""Public names of upstream's modules, compared with what hermes-agent serves of them."""
