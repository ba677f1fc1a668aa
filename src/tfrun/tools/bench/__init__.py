"""How fast these machines are together: all-reduce, link, scaling."""
