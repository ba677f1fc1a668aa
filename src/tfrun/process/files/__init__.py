"""Files that a script writes on several workers at once: each path is one worker's whole file."""
