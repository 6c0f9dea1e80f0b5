"""KafscaleUsers: credentials, access rules and quotas."""
