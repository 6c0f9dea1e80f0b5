"""The Spark data source `kafscale`: what is published of a topic, read straight from the object store."""
