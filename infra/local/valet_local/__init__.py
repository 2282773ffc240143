"""Everything on one machine: embedded NATS and PostgreSQL, the supervisor, the valet command."""
