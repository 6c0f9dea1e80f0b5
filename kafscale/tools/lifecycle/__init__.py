"""`kafscale lifecycle`: topics' retention as lifecycle rules of the bucket."""
