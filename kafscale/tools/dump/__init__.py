"""`kafscale dump`: reads stored objects batch by batch, damaged ones included."""
