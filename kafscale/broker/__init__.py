"""The composition root: which parts a broker is made of, and how its process starts and stops."""
