"""The protocol of transactions, checked in every state that small scopes reach."""
