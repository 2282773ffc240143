"""What agents and people want to remember."""
