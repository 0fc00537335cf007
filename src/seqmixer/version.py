"""The version of the code, part of every score's signature."""

__version__ = "0.1.0"
