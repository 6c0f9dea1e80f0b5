"""Journals on real stores: the protocol itself is `kafscale.journal`."""
