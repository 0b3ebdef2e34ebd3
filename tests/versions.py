"""Run the doors' tests on the other ends of the supported range of LiteLLM.

``python -m tests.versions`` lays each version over the environment that runs it (pip installs
LiteLLM and what that version needs otherwise, nothing else), in a folder that it removes.
"""
