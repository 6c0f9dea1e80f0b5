"""The `kafscale` command line: one file for each command, and the reports that they print."""
