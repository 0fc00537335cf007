"""python -m seqmixer"""

from seqmixer.cli import main

main()
