"""`python -m warmturn` is the same as the command `warmturn`."""

from warmturn.cli import main

if __name__ == "__main__":
    main()
