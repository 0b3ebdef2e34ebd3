"""A local page of a store: rates over time, single responses, what comes, and the review."""
