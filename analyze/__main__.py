"""`python -m analyze`."""

from analyze.cli.main import main

main()
