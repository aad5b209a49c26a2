"""From chapters to a site: execution, pairing, staging, the strict build."""
