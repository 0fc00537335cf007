"""`seqmixer init`: from the files that a person has to a config that fits them and the machine."""

from seqmixer.init.files import Files, find
from seqmixer.init.plan import Plan, plan

__all__ = ["Files", "Plan", "find", "plan"]
