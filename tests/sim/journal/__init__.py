"""The protocol of the journal, checked in every state that small scopes reach."""
