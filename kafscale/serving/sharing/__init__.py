"""What ShareFetch and ShareAcknowledge do: sessions, acknowledgements, reads and waits (KIP-932)."""
