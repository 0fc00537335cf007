"""`make stress`: thousands of kills, damaged and hostile files and failing rewards, against the command line alone."""
