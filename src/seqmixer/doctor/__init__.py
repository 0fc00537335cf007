"""`seqmixer doctor`: what stands in the way of a run, before it costs hours."""

from seqmixer.doctor.examination import examine
from seqmixer.doctor.findings import Diagnosis, Finding
from seqmixer.doctor.preflight import Preflight, preflight, verdict

__all__ = ["Diagnosis", "Finding", "Preflight", "examine", "preflight", "verdict"]
