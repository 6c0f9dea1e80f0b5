"""Transactions: the coordinator of transactional ids, its state machine, and what takes part in a transaction."""
