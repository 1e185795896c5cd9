"""`python -m connector` -> the command `icebridge`."""

from connector.cli.main import main

if __name__ == "__main__":
    main()
