"""What to run: specification, settings, coded errors, and what the files of a run hold."""
