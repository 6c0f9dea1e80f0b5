"""Iceberg tables of exports: created, evolved, and committed together with the state of the export."""
