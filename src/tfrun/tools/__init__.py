"""The verbs that run a script several times, or look at machines: a folder each."""
