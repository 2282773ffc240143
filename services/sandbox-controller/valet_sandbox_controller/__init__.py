"""Sandbox life cycle over providers; the portal that is a sandbox's only door."""
