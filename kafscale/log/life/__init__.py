"""What happens to published segments: merging, retention, DeleteRecords, garbage collection."""
