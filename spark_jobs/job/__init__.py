"""One export from start to end: its lease, its plan, its commits, its reports."""
