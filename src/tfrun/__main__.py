"""`python -m tfrun` is `tfrun`."""

from tfrun.cli.main import main

main()
