pytest_plugins = ["guard.testing"]
