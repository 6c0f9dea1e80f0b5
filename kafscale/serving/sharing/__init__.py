"""ShareFetch and ShareAcknowledge: sessions, acknowledgements, reads and waits (KIP-932)."""
