"""Language models inside packages of the index: read as data from the installed files, checked by SHA-256, converted once to a folder."""
