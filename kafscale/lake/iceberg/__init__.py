"""Writes topics into Iceberg tables with pyiceberg, without Spark: for what one process can read and write."""
