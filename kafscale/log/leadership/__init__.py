"""Leadership of one partition at one broker: its states, events and effects, and the table of them."""
