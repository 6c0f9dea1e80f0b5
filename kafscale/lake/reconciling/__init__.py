"""A topic compared with its tables: what is compared, and how differences are shown. Pure."""
