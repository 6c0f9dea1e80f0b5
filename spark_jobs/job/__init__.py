"""One export from start to end: what it holds, what it plans, what it commits, what it tells."""
