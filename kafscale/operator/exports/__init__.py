"""KafscaleExports: the CronJobs and Deployments that export topics, and what they have reached."""
