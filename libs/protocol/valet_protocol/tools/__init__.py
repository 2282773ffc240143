"""Everything an agent may ask of the platform."""
