"""The bias index: known biased statements, searched by meaning."""
