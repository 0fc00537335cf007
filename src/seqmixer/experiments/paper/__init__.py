"""`seqmixer paper TASK`: the paper's experiments on one of its tasks, with every table and figure."""
