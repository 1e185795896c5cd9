"""`python -m connector` is `icebridge`."""

from connector.cli.main import main

if __name__ == "__main__":
    main()
