"""Topics read straight from the stores, without a broker: what is published, and its checked batches."""
