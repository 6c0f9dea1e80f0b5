"""Iceberg tables as exports write them: created, evolved, committed together with what they hold."""
