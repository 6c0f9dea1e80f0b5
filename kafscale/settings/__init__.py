"""The settings: one row each, from which parsing, help, documentation and chart values derive."""
