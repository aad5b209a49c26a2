"""Text as starts and as a subject: passages, starting states, embeddings and topics."""
