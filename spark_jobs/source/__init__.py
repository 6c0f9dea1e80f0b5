"""The Spark data source `kafscale`: the published records of a topic, read straight from the object store."""
