"""People who were let in by a code. Source: plugin contract §11.2."""

from hermes_agent.contracts.platform.pairing import PairingStore as PairingStore
