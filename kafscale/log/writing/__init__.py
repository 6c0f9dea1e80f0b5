"""The commit path: from a buffer of batches to a published segment."""
