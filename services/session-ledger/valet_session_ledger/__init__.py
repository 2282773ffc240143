"""Decides commands, folds events, keeps the read models, rebuilds them by replay."""
