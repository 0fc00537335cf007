"""`seqmixer study`: many algorithms from one XENT model, at equal numbers of sampled sentences, in one table."""
