"""The task board of agents."""
