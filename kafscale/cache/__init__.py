"""Caches: a map bounded by bytes, and one flight for equal loads."""
