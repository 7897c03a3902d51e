import torch
from hypothesis import settings

torch.set_num_threads(1)  # small tensors: more threads only fight over them
settings.register_profile("repeatable", max_examples=30, deadline=None, derandomize=True)
settings.load_profile("repeatable")
