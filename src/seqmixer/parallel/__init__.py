"""Several processes: ranks that train one model together, and workers that serve one run.

Nothing is imported here: a worker process starts without torch.
"""
