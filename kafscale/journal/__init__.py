"""The protocol of journals: who may say what is committed. Pure: no I/O, and every state is a value."""
