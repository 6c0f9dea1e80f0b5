"""Decodes the bytes of records into columns: the value formats, and dead letters with a reason for the rest."""
