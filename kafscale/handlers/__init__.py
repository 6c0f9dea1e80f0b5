"""One file for each Kafka API that is served, and their routes: the listing is the list of features."""
