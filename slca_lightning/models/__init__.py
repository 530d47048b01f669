"""Policies: loading, scoring tokens, and a tiny one to try things with."""
