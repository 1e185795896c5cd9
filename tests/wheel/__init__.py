"""The wheel, installed by pip as a user does it: `make packages-test`."""
