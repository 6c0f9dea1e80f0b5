"""A partition's log: appending, leading and following it. Below: its writing, its reading, its life."""
