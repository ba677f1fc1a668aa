"""`tfrun env`: what a bug report needs to know of this machine and of what is installed."""
