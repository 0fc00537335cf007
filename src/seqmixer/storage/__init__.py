"""The rules of a run folder: what is written and sealed there, and what is refused when it is read again."""
