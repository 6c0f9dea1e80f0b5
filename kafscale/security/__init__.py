"""Who a client is, and what it may do: principals, credentials, access rules and quotas."""
