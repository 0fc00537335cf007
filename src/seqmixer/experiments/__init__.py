"""Many runs: grids, comparisons, reports."""
