"""The lake export: a Spark data source over published segments, and the jobs that bring topics into Iceberg."""
