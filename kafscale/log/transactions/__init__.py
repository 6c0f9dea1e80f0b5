"""Transactions in the logs that this broker leads: the question before a first batch, and the markers at the end."""
