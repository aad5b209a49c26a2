"""The page made from the claims ledger."""
