"""`valet bench`: what Valet adds, measured beside the floor of each figure in the same run. See docs/performance.md."""
