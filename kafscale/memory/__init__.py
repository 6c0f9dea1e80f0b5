"""Memory for bytes: reused slabs, pieces addressed as one, and the budget that bounds them."""
