"""Leader election among operators."""
