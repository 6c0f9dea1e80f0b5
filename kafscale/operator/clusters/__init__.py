"""KafscaleClusters: brokers and their objects."""
