"""How this copy was installed: from the module ``biasguard`` in a wheel, else from the checkout."""

from __future__ import annotations

try:
    from guard._biasguard import (
        FAILED,
        checkout_command,
        install_command,
        main,
        other_distributions,
        repair_command,
    )
except ModuleNotFoundError:  # not a checkout
    from biasguard import (  # type: ignore[no-redef]
        FAILED,
        checkout_command,
        install_command,
        main,
        other_distributions,
        repair_command,
    )

__all__ = [
    "FAILED",
    "checkout_command",
    "install_command",
    "main",
    "other_distributions",
    "repair_command",
]
