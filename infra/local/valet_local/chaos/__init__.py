"""`valet chaos`: everything that can die dies, at random but repeatably, while sessions work; then it is checked that
nothing was lost, nothing happened twice and nobody waits for ever. See docs/reliability.md."""
