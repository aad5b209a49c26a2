"""Settings of the whole suite."""

import torch
from hypothesis import settings

# One thread: small tensors gain nothing from more, and timings and sums do not depend on the machine's load.
torch.set_num_threads(1)

# Same examples on every run, no deadline on a loaded machine, no database left in the tree.
settings.register_profile("suite", derandomize=True, deadline=None, database=None, max_examples=60)
settings.load_profile("suite")
