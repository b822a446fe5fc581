"""Multi-token prediction: the head drafts, the target verifies, the accepted prefix is committed."""
