"""Installing packages: how to, instead. Source: plugin contract §11.2, §11.3."""

from hermes_agent.compat.extras import pip_install as _real_pip_install

_pip_install = _real_pip_install
