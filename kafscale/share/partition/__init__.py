"""The state machine of a share partition: one partition, as one share group reads it. Pure."""
