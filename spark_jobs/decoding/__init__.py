"""From a record's bytes to columns: the value formats, and what becomes of values that do not decode."""
