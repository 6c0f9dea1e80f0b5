"""The life of published segments: merging, retention, DeleteRecords, garbage collection, lost objects."""
