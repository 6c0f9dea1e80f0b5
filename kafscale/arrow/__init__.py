"""Topics as Arrow record batches. Needs the extra `arrow`."""
