"""`tfrun.launch`: runs a function as a job, from a notebook or any Python program."""
