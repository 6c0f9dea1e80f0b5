"""Exports of topics into Iceberg tables: what every exporter shares, and the exporter without Spark."""
