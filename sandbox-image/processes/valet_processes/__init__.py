"""Processes and terminals of a sandbox, which outlive every connection to them."""
