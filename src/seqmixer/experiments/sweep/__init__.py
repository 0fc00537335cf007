"""`seqmixer sweep`: many runs that look for the settings with the highest validation score."""
