"""How agents start: a folder for each way, behind one interface."""
