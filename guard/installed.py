"""How this copy was installed: from the module ``biasguard`` in a wheel, else from the checkout."""

from __future__ import annotations

try:
    from guard._biasguard import (
        checkout_command,
        install_command,
        main,
        other_distributions,
        repair_command,
    )
except ModuleNotFoundError:  # not a checkout
    from biasguard import (  # type: ignore[no-redef]
        checkout_command,
        install_command,
        main,
        other_distributions,
        repair_command,
    )

__all__ = ["checkout_command", "install_command", "main", "other_distributions", "repair_command"]
