"""One module for each stored format, and the walkers over segments. Pages: docs/format/."""
