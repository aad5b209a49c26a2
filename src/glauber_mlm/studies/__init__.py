"""What the chapters compute: each study takes conditionals and numbers, and returns tables."""
