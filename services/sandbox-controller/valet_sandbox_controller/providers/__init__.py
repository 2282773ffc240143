"""Sandbox providers."""
