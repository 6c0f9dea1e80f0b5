"""Topics: what a KafscaleTopic says, and how its topic becomes so."""
