"""Devices that a test of device code runs on: the CPU everywhere, and a GPU where there is one."""

import pytest
import torch

CARD = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = ["cpu", pytest.param("cuda:0", marks=CARD)]
