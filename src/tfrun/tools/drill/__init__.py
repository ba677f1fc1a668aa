"""Fault drills: a script is run undisturbed, then under faults, and compared."""
