"""How this copy was installed, by the module that a wheel has beside the package."""

from __future__ import annotations

try:
    from guard._biasguard import checkout_command, foreign, install_command, main, mend
except ModuleNotFoundError:  # not a checkout
    from biasguard import checkout_command, foreign, install_command, main, mend  # type: ignore[no-redef]

__all__ = ["checkout_command", "foreign", "install_command", "main", "mend"]
