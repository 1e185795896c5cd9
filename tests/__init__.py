"""Tests of icebridge."""
