"""What whole-system tests share: a platform started as a person would start it, and a client of its own making."""
