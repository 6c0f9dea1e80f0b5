"""KafscaleTopics and their topics."""
