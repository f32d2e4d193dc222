"""`python -m collect`: the same as the console script."""

from collect.cli import main

main()
